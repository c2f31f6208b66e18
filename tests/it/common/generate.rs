//! Valid MySQL segments of any size, written fast.

use std::io::{self, Write};

use binlog_archiver::gtid::{MysqlSet, Tag, Uuid};

/// Body bytes of one generated rows event, near what a server writes at most.
const ROWS_BODY: usize = 8 << 10;

/// Bytes of noise that rows are cut from. More than the window of zstd at level 1, so that their
/// coming again does not compress.
const NOISE: usize = 4 << 20;

/// What rows events are filled with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// The same bytes again and again.
    Alike,
    /// Noise, which does not compress.
    Noise,
}

/// What a generated segment holds.
#[derive(Debug, Clone)]
pub struct Generated {
    /// The server of its GTIDs.
    pub uuid: Uuid,
    /// The number of its first GTID; those before it, from 1 on, are its earlier GTIDs.
    pub first_gno: u64,
    /// At least so many bytes before the ROTATE event; 0 for no transaction.
    pub size_min: u64,
    /// Rows events in a transaction.
    pub rows_events: usize,
    /// The next segment; without one there is no ROTATE and the in-use flag is set.
    pub next: Option<String>,
    /// Whether a server start opened it.
    pub created_at_startup: bool,
    /// Seconds in every header.
    pub time: u32,
    /// Makes the bytes of two segments differ.
    pub seed: u8,
    /// What the rows are.
    pub rows: Rows,
}

impl Default for Generated {
    fn default() -> Self {
        Self {
            uuid: Uuid::from_bytes([0x5e; 16]),
            first_gno: 1,
            size_min: 64 << 10,
            rows_events: 2,
            next: Some("binlog.000002".to_owned()),
            created_at_startup: false,
            time: 1_796_070_642,
            seed: 0,
            rows: Rows::Alike,
        }
    }
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Bytes.
    pub size: u64,
    /// Transactions, each with a GTID.
    pub transactions: u64,
    /// Events.
    pub events: u64,
}

impl Generated {
    /// Writes the segment.
    pub fn write(&self, out: &mut impl Write) -> io::Result<Written> {
        let mut segment = Segment { time: self.time, offset: 4, events: 0, buffer: Vec::new() };
        segment.buffer.extend(b"\xfebin");
        segment.format_description(self.created_at_startup, self.next.is_none());
        let mut previous = MysqlSet::new();
        previous.insert_range(self.uuid, &Tag::untagged(), 1, self.first_gno - 1);
        segment.event(35, 0x80, &previous.to_binary());
        let rows: Vec<u8> = match self.rows {
            Rows::Alike => (0..ROWS_BODY).map(|at| (at as u8) ^ self.seed).collect(),
            Rows::Noise => {
                let mut noise = vec![0; NOISE];
                fastrand::Rng::with_seed(self.seed.into()).fill(&mut noise);
                noise
            }
        };
        let mut rows = rows.chunks_exact(ROWS_BODY).cycle();
        let mut transactions = 0;
        while segment.offset < self.size_min {
            let gno = self.first_gno + transactions;
            segment.transaction(self.uuid, gno, rows.by_ref().take(self.rows_events));
            transactions += 1;
            segment.drain(out)?;
        }
        if let Some(next) = &self.next {
            let mut body = 4_u64.to_le_bytes().to_vec();
            body.extend(next.as_bytes());
            segment.event(4, 0, &body);
        }
        segment.drain(out)?;
        Ok(Written { size: segment.offset, transactions, events: segment.events })
    }

    /// The segment as bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(&mut bytes).unwrap();
        bytes
    }
}

struct Segment {
    time: u32,
    offset: u64,
    events: u64,
    buffer: Vec<u8>,
}

impl Segment {
    fn drain(&mut self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn header(&mut self, kind: u8, flags: u16, body: usize) -> usize {
        let start = self.buffer.len();
        let length = u32::try_from(19 + body + 4).unwrap();
        self.offset += u64::from(length);
        self.buffer.extend(self.time.to_le_bytes());
        self.buffer.push(kind);
        self.buffer.extend(1_u32.to_le_bytes());
        self.buffer.extend(length.to_le_bytes());
        self.buffer.extend((self.offset as u32).to_le_bytes());
        self.buffer.extend(flags.to_le_bytes());
        self.events += 1;
        start
    }

    fn event(&mut self, kind: u8, flags: u16, body: &[u8]) {
        let start = self.header(kind, flags, body.len());
        self.buffer.extend_from_slice(body);
        let crc = crc32fast::hash(&self.buffer[start..]);
        self.buffer.extend(crc.to_le_bytes());
    }

    fn format_description(&mut self, created_at_startup: bool, in_use: bool) {
        let mut body = 4_u16.to_le_bytes().to_vec();
        let mut version = b"9.7.4".to_vec();
        version.resize(50, 0);
        body.extend(version);
        body.extend(if created_at_startup { self.time } else { 0 }.to_le_bytes());
        body.push(19);
        body.extend([0; 42]);
        body.push(1);
        self.event(15, 0, &body);
        if in_use {
            // Set after the CRC32, as a server does.
            self.buffer[4 + 17] |= 1;
        }
    }

    fn transaction<'a>(&mut self, uuid: Uuid, gno: u64, rows: impl Iterator<Item = &'a [u8]>) {
        let mut gtid = vec![1];
        gtid.extend(uuid.as_bytes());
        gtid.extend(gno.to_le_bytes());
        gtid.push(2);
        gtid.extend([0; 16]);
        let micros = u64::from(self.time) * 1_000_000 + gno;
        gtid.extend(&micros.to_le_bytes()[..7]);
        gtid.push(0);
        gtid.extend(90_704_u32.to_le_bytes());
        self.event(33, 0, &gtid);
        let mut begin = vec![0; 8];
        begin.extend([4, 0, 0, 0, 0]);
        begin.extend(b"shop\0BEGIN");
        self.event(2, 8, &begin);
        let mut table = 110_u64.to_le_bytes()[..6].to_vec();
        table.extend(b"\x01\x00\x04shop\x00\x01t\x00\x01\x03\x00\x00");
        self.event(19, 0, &table);
        for rows in rows {
            self.event(30, 0, rows);
        }
        self.event(16, 0, &gno.to_le_bytes());
    }
}
