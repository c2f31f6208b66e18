//! The 19-byte header that every event has, event types, and reading of little-endian values.

/// Bytes of the common event header.
pub(super) const HEADER_LEN: usize = 19;
/// Bytes of the CRC32 at the end of an event.
pub(super) const CRC_LEN: usize = 4;
/// Where the flags begin in a header; their lowest bit is "in use" in a format description.
pub(super) const FLAGS_AT: usize = 17;

/// `LOG_EVENT_BINLOG_IN_USE_F`.
pub(super) const FLAG_IN_USE: u16 = 0x0001;
/// `LOG_EVENT_ARTIFICIAL_F`.
pub(super) const FLAG_ARTIFICIAL: u16 = 0x0020;
/// `LOG_EVENT_RELAY_LOG_F`.
pub(super) const FLAG_RELAY_LOG: u16 = 0x0040;

/// Numbers of event types, under their names in the servers' sources.
pub(super) mod kind {
    pub(crate) const START_V3: u8 = 1;
    pub(crate) const QUERY: u8 = 2;
    pub(crate) const STOP: u8 = 3;
    pub(crate) const ROTATE: u8 = 4;
    pub(crate) const INTVAR: u8 = 5;
    pub(crate) const RAND: u8 = 13;
    pub(crate) const USER_VAR: u8 = 14;
    pub(crate) const FORMAT_DESCRIPTION: u8 = 15;
    pub(crate) const XID: u8 = 16;
    pub(crate) const EXECUTE_LOAD_QUERY: u8 = 18;
    pub(crate) const TABLE_MAP: u8 = 19;
    pub(crate) const DELETE_ROWS_V1: u8 = 25;
    pub(crate) const INCIDENT: u8 = 26;
    pub(crate) const ROWS_QUERY: u8 = 29;
    pub(crate) const DELETE_ROWS: u8 = 32;
    pub(crate) const GTID: u8 = 33;
    pub(crate) const ANONYMOUS_GTID: u8 = 34;
    pub(crate) const PREVIOUS_GTIDS: u8 = 35;
    pub(crate) const XA_PREPARE: u8 = 38;
    pub(crate) const PARTIAL_UPDATE_ROWS: u8 = 39;
    pub(crate) const TRANSACTION_PAYLOAD: u8 = 40;
    pub(crate) const GTID_TAGGED: u8 = 42;
    pub(crate) const MARIADB_ANNOTATE_ROWS: u8 = 160;
    pub(crate) const MARIADB_GTID: u8 = 162;
    pub(crate) const MARIADB_GTID_LIST: u8 = 163;
    pub(crate) const MARIADB_START_ENCRYPTION: u8 = 164;
    pub(crate) const MARIADB_QUERY_COMPRESSED: u8 = 165;
    pub(crate) const MARIADB_DELETE_ROWS_COMPRESSED: u8 = 171;
}

/// A decoded event header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) timestamp: u32,
    pub(super) kind: u8,
    pub(super) server_id: u32,
    pub(super) length: u32,
    pub(super) end_position: u32,
    pub(super) flags: u16,
}

impl Header {
    /// Decodes the first 19 bytes; `None` when there are fewer.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (fields, _) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let [t0, t1, t2, t3, kind, s0, s1, s2, s3, l0, l1, l2, l3, p0, p1, p2, p3, f0, f1] =
            *fields;
        Some(Self {
            timestamp: u32::from_le_bytes([t0, t1, t2, t3]),
            kind,
            server_id: u32::from_le_bytes([s0, s1, s2, s3]),
            length: u32::from_le_bytes([l0, l1, l2, l3]),
            end_position: u32::from_le_bytes([p0, p1, p2, p3]),
            flags: u16::from_le_bytes([f0, f1]),
        })
    }

    /// Whether every field is zero: not an event, but bytes that were never written.
    pub(super) const fn is_zero(&self) -> bool {
        self.timestamp == 0
            && self.kind == 0
            && self.server_id == 0
            && self.length == 0
            && self.end_position == 0
            && self.flags == 0
    }
}

/// Takes values off the front of a slice; every read can fail, none can panic.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn bytes16(&mut self) -> Option<[u8; 16]> {
        self.array()
    }

    /// The variable-length unsigned integer of MySQL's serialization library: as many trailing
    /// one-bits in the first byte as there are bytes after it.
    pub(super) fn varint(&mut self) -> Option<u64> {
        let first = self.u8()?;
        let extra = first.trailing_ones();
        if extra == 8 {
            return self.u64();
        }
        let mut bytes = [0; 8];
        let (head, tail) = bytes.split_first_mut()?;
        *head = first;
        let more = usize::try_from(extra).ok()?;
        tail.get_mut(..more)?.copy_from_slice(self.take(more)?);
        Some(u64::from_le_bytes(bytes) >> (extra + 1))
    }

    /// The signed form of [`Self::varint`].
    pub(super) fn svarint(&mut self) -> Option<i64> {
        let raw = self.varint()?;
        let half = i64::try_from(raw >> 1).ok()?;
        Some(if raw & 1 == 0 { half } else { !half })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_of_a_real_tagged_gtid() {
        let read = |bytes: &[u8]| Cursor(bytes).varint();
        assert_eq!(read(&[0x78]), Some(60));
        assert_eq!(read(&[0x41, 0x03]), Some(0xd0));
        assert_eq!(read(&[0x83, 0x12, 0x0b]), Some(90704));
        let micros = [0x7f, 0x1b, 0xf1, 0xa2, 0x48, 0x84, 0x61, 0x06];
        assert_eq!(read(&micros), Some(1_796_070_642_479_387));
        assert_eq!(read(&[0xff, 1, 0, 0, 0, 0, 0, 0, 0x80]), Some(0x8000_0000_0000_0001));
        assert_eq!(read(&[0x7f, 1]), None);
        assert_eq!(read(&[]), None);
        assert_eq!(Cursor(&[0x04]).svarint(), Some(1));
        assert_eq!(Cursor(&[0x02]).svarint(), Some(-1));
    }
}
