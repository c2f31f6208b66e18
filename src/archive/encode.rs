//! From a segment's file to the parts that are stored: read, hash again, encode, cut.
//!
//! Runs on a blocking thread and hands parts over a channel. It holds at most as many parts as it
//! was given tokens, whatever the segment's size.
//!
//! **Cancellation.** When the receiver is dropped, the thread ends at its next part.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::layout::Encoding;
use crate::segment::Digest;

/// Bytes a read; larger ones fall out of the second-level cache.
pub(super) const READ: usize = 256 << 10;

/// zstd's level: the only one a two-core database host affords.
pub(super) const ZSTD_LEVEL: i32 = 1;

/// One part with its digest.
#[derive(Debug)]
pub(super) struct EncodedPart {
    pub(super) bytes: Bytes,
    pub(super) digest: Digest,
}

/// What came of the whole file.
#[derive(Debug)]
pub(super) struct Encoded {
    /// SHA-256 of the bytes read.
    pub(super) source: Digest,
    /// SHA-256 of the bytes stored.
    pub(super) stored: Digest,
    /// Bytes stored.
    pub(super) size: u64,
}

/// What to encode, and how.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) file: Arc<File>,
    pub(super) size: u64,
    pub(super) encoding: Encoding,
    pub(super) part_size: usize,
}

/// Reads `size` bytes of the file and sends them on as parts. A file that is shorter is an
/// `UnexpectedEof`.
pub(super) fn encode(
    job: &Job,
    tokens: mpsc::Receiver<()>,
    parts: mpsc::Sender<EncodedPart>,
) -> io::Result<Encoded> {
    let cutter = Cutter::new(job.part_size, job.encoding, tokens, parts);
    match job.encoding {
        Encoding::Identity => {
            let mut cutter = cutter;
            let source = copy(job, &mut cutter)?;
            let (size, _) = cutter.finish()?;
            Ok(Encoded { source, stored: source, size })
        }
        Encoding::Zstd => {
            let mut encoder = zstd::stream::write::Encoder::new(cutter, ZSTD_LEVEL)?;
            encoder.include_checksum(true)?;
            encoder.set_pledged_src_size(Some(job.size))?;
            let source = copy(job, &mut encoder)?;
            let (size, stored) = encoder.finish()?.finish()?;
            let stored = stored.unwrap_or(source);
            Ok(Encoded { source, stored, size })
        }
    }
}

fn copy(job: &Job, out: &mut impl Write) -> io::Result<Digest> {
    let mut buffer = vec![0; READ];
    let mut hash = Sha256::new();
    let mut offset = 0;
    while offset < job.size {
        let want = usize::try_from(job.size - offset).unwrap_or(READ).min(READ);
        let chunk = buffer.get_mut(..want).unwrap_or_default();
        job.file.read_exact_at(chunk, offset)?;
        hash.update(&*chunk);
        out.write_all(chunk)?;
        offset += want as u64;
    }
    Ok(Digest::from_bytes(hash.finalize().into()))
}

/// Cuts what is written to it into parts of exactly one size, but for the last.
struct Cutter {
    part_size: usize,
    buffer: Vec<u8>,
    whole: Option<Sha256>,
    size: u64,
    tokens: mpsc::Receiver<()>,
    parts: mpsc::Sender<EncodedPart>,
}

fn stopped() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the upload was stopped")
}

impl Cutter {
    fn new(
        part_size: usize,
        encoding: Encoding,
        tokens: mpsc::Receiver<()>,
        parts: mpsc::Sender<EncodedPart>,
    ) -> Self {
        let whole = match encoding {
            // The stored bytes are the source's: one hash serves both.
            Encoding::Identity => None,
            Encoding::Zstd => Some(Sha256::new()),
        };
        Self { part_size, buffer: Vec::new(), whole, size: 0, tokens, parts }
    }

    fn send(&mut self) -> io::Result<()> {
        let bytes = Bytes::from(std::mem::take(&mut self.buffer));
        if let Some(whole) = &mut self.whole {
            whole.update(&bytes);
        }
        self.size += bytes.len() as u64;
        let digest = Digest::from_bytes(Sha256::digest(&bytes).into());
        self.parts.blocking_send(EncodedPart { bytes, digest }).map_err(|_| stopped())
    }

    fn finish(mut self) -> io::Result<(u64, Option<Digest>)> {
        if !self.buffer.is_empty() || self.size == 0 {
            self.send()?;
        }
        let whole = self.whole.take().map(|hash| Digest::from_bytes(hash.finalize().into()));
        Ok((self.size, whole))
    }
}

impl Write for Cutter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.buffer.capacity() == 0 {
            self.tokens.blocking_recv().ok_or_else(stopped)?;
            self.buffer.reserve_exact(self.part_size);
        }
        let room = self.part_size - self.buffer.len();
        let (taken, _) = data.split_at(room.min(data.len()));
        self.buffer.extend_from_slice(taken);
        if self.buffer.len() == self.part_size {
            self.send()?;
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
