//! Segments put together event by event.

use crate::binlog::{Inspection, inspect};

/// Bytes of a segment under construction.
pub(super) struct Builder {
    pub(super) bytes: Vec<u8>,
    crc: bool,
    server: u32,
}

impl Builder {
    /// Magic number and format description.
    pub(super) fn new(version: &str, algorithm: u8, flags: u16) -> Self {
        let mut builder = Self { bytes: b"\xfebin".to_vec(), crc: true, server: 7 };
        let mut body = 4_u16.to_le_bytes().to_vec();
        let mut text = version.as_bytes().to_vec();
        text.resize(50, 0);
        body.extend(text);
        body.extend([0; 4]);
        body.push(19);
        body.extend([0; 40]);
        body.push(algorithm);
        // Servers compute this CRC32 with the in-use bit clear.
        builder.event_with(15, flags & !1, &body, |end| end);
        builder.bytes[4 + 17] |= (flags & 1) as u8;
        builder.crc = algorithm == 1;
        builder
    }

    pub(super) fn mysql() -> Self {
        let mut builder = Self::new("9.7.4", 1, 0);
        builder.event(35, &[0; 8]);
        builder
    }

    pub(super) fn mariadb() -> Self {
        let mut builder = Self::new("11.4.2-MariaDB", 1, 0);
        builder.event(163, &[0; 4]);
        builder
    }

    pub(super) fn event(&mut self, kind: u8, body: &[u8]) -> &mut Self {
        self.event_with(kind, 0, body, |end| end)
    }

    /// An event whose end position is what `position` makes of the true one.
    pub(super) fn event_with(
        &mut self,
        kind: u8,
        flags: u16,
        body: &[u8],
        position: impl FnOnce(u32) -> u32,
    ) -> &mut Self {
        let start = self.bytes.len();
        let length = 19 + body.len() + if self.crc { 4 } else { 0 };
        self.bytes.extend(1_796_070_642_u32.to_le_bytes());
        self.bytes.push(kind);
        self.bytes.extend(self.server.to_le_bytes());
        self.bytes.extend((length as u32).to_le_bytes());
        self.bytes.extend(position((start + length) as u32).to_le_bytes());
        self.bytes.extend(flags.to_le_bytes());
        self.bytes.extend(body);
        if self.crc {
            let crc = crc32fast::hash(&self.bytes[start..]);
            self.bytes.extend(crc.to_le_bytes());
        }
        self
    }

    pub(super) fn query(&mut self, text: &str) -> &mut Self {
        let mut body = vec![0; 13];
        body.push(0);
        body.extend(text.as_bytes());
        self.event(2, &body)
    }

    /// MySQL's GTID event, as 5.6 wrote it.
    pub(super) fn gtid(&mut self, gno: u64) -> &mut Self {
        let mut body = vec![0];
        body.extend([0xaa; 16]);
        body.extend(gno.to_le_bytes());
        self.event(33, &body)
    }

    pub(super) fn anonymous(&mut self) -> &mut Self {
        self.event(34, &[0; 25])
    }

    pub(super) fn mariadb_gtid(&mut self, seq: u64, flags: u8) -> &mut Self {
        let mut body = seq.to_le_bytes().to_vec();
        body.extend([3, 0, 0, 0, flags, 0, 0, 0, 0, 0, 0]);
        self.event(162, &body)
    }

    pub(super) fn xid(&mut self) -> &mut Self {
        self.event(16, &[9; 8])
    }

    pub(super) fn rotate(&mut self) -> &mut Self {
        self.event(4, b"\x04\0\0\0\0\0\0\0binlog.000002")
    }

    pub(super) fn inspect(&self) -> Inspection {
        inspect(self.bytes.as_slice()).unwrap()
    }

    /// The text of the GTIDs that count.
    pub(super) fn added(&self) -> String {
        self.inspect().coverage.added.map(|added| added.to_string()).unwrap_or_default()
    }
}
