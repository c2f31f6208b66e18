//! Request bodies: a file read by position, and bytes in memory under a bandwidth limit.
//!
//! **Invariants.** A body either yields exactly the bytes it promised or ends in a [`Fault`]; a
//! file that is shorter or longer than promised is `SourceChanged`. With [`Recheck::HashAgain`]
//! the last chunk is yielded only after the hash of all bytes was the digest, so a server never
//! holds the whole of a changed file. At most two chunks wait to be sent.
//!
//! **Cancellation.** Dropping a body ends its reader at the next chunk.

use std::fs::File;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::pace::{CHUNK, Pace, wait, wait_blocking};
use super::{FileBody, Recheck};
use crate::fault::{Fault, FaultKind, Operation, io_name};
use crate::segment::Digest;

/// The chunks of a file, read ahead by a thread of the blocking pool.
#[derive(Debug)]
pub(super) struct FileChunks {
    chunks: mpsc::Receiver<Result<Bytes, Fault>>,
    left: u64,
}

impl FileChunks {
    /// Starts reading. An empty file that should not be empty is refused here, as a request
    /// without a body asks for no chunk.
    pub(super) fn start(body: FileBody, pace: Option<Arc<Pace>>) -> Result<Self, Fault> {
        let empty = Digest::from_bytes(Sha256::digest(b"").into());
        if body.size == 0 && body.check == Recheck::HashAgain && body.digest != empty {
            return Err(changed("it is empty"));
        }
        let (sender, chunks) = mpsc::channel(1);
        let left = body.size;
        tokio::task::spawn_blocking(move || {
            let ended = read_chunks(&body, pace.as_deref(), |chunk| {
                sender.blocking_send(Ok(chunk)).is_ok()
            });
            if let Err(fault) = ended {
                // Nobody waits for the fault once the request is gone.
                drop(sender.blocking_send(Err(fault)));
            }
        });
        Ok(Self { chunks, left })
    }
}

fn changed(how: &str) -> Fault {
    let message = format!("segment changed while it was sent: {how}; it is inspected again");
    Fault::new(Operation::ReadSource, FaultKind::SourceChanged, message)
}

fn unreadable(error: &io::Error) -> Fault {
    let mut fault =
        Fault::new(Operation::ReadSource, FaultKind::LocalIo, format!("read segment: {error}"));
    fault.io = Some(io_name(error));
    fault
}

/// Reads exactly so many bytes into memory that was not cleared first: clearing costs as much as a
/// twentieth of the whole upload.
fn read_exact_at(file: &File, length: usize, at: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let from = at + bytes.len() as u64;
        match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut bytes), from) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // An allocation may have more room than was asked for.
    bytes.truncate(length);
    Ok(bytes)
}

/// Reads the file in order and passes its chunks on until `pass` returns false.
pub(super) fn read_chunks(
    body: &FileBody,
    pace: Option<&Pace>,
    mut pass: impl FnMut(Bytes) -> bool,
) -> Result<(), Fault> {
    let chunk = pace.map_or(CHUNK, Pace::chunk) as u64;
    let mut hash = (body.check == Recheck::HashAgain).then(Sha256::new);
    let mut at = 0;
    while at < body.size {
        let length = chunk.min(body.size - at);
        let length = usize::try_from(length).unwrap_or(CHUNK);
        let bytes = read_exact_at(&body.file, length, at).map_err(|error| {
            if error.kind() == io::ErrorKind::UnexpectedEof {
                changed("it became shorter")
            } else {
                unreadable(&error)
            }
        })?;
        at += length as u64;
        if let Some(hash) = &mut hash {
            hash.update(&bytes);
        }
        if at == body.size {
            let size = body.file.metadata().map_err(|error| unreadable(&error))?.len();
            if size != body.size {
                return Err(changed("it became longer"));
            }
            let hashed = hash.take().map(|hash| Digest::from_bytes(hash.finalize().into()));
            if hashed.is_some_and(|hashed| hashed != body.digest) {
                return Err(changed("its SHA-256 is another one"));
            }
        }
        if let Some(pace) = pace {
            wait_blocking(pace.reserve(bytes.len()));
        }
        if !pass(bytes.into()) {
            break;
        }
    }
    Ok(())
}

impl Body for FileChunks {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(self.chunks.poll_recv(cx)) {
            Some(Ok(bytes)) => {
                self.left = self.left.saturating_sub(bytes.len() as u64);
                Some(Ok(Frame::data(bytes)))
            }
            Some(Err(fault)) => Some(Err(fault)),
            None => Some(Err(unreadable(&io::Error::other("the reader ended early")))),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// Bytes in memory, sent in turns.
#[derive(Debug)]
pub(super) struct PacedBytes {
    bytes: Bytes,
    pace: Arc<Pace>,
    turn: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl PacedBytes {
    pub(super) fn new(bytes: Bytes, pace: Arc<Pace>) -> Self {
        Self { bytes, pace, turn: None }
    }
}

impl Body for PacedBytes {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        if self.bytes.is_empty() {
            return Poll::Ready(None);
        }
        let pace = Arc::clone(&self.pace);
        let length = pace.chunk().min(self.bytes.len());
        let mut turn = match self.turn.take() {
            Some(turn) => turn,
            None => Box::pin(wait(pace.reserve(length))),
        };
        if turn.as_mut().poll(cx).is_pending() {
            self.turn = Some(turn);
            return Poll::Pending;
        }
        Poll::Ready(Some(Ok(Frame::data(self.bytes.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use std::os::unix::fs::FileExt as _;

    use super::*;
    use crate::store::digest_of;

    fn body(content: &[u8], check: Recheck) -> FileBody {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        FileBody {
            file: Arc::new(file),
            size: content.len() as u64,
            digest: digest_of(content),
            check,
        }
    }

    fn read(body: &FileBody) -> (usize, Option<FaultKind>) {
        let mut passed = 0;
        let ended = read_chunks(body, None, |chunk| {
            passed += chunk.len();
            true
        });
        (passed, ended.err().map(|fault| fault.kind))
    }

    #[test]
    fn the_last_chunk_of_a_changed_file_is_withheld() {
        let content = vec![7; CHUNK * 2 + 10];
        assert_eq!(read(&body(&content, Recheck::HashAgain)), (content.len(), None));
        let again = body(&content, Recheck::HashAgain);
        again.file.write_all_at(b"x", 3).unwrap();
        assert_eq!(read(&again), (CHUNK * 2, Some(FaultKind::SourceChanged)));
        let by_store = body(&content, Recheck::ByStore);
        by_store.file.write_all_at(b"x", 3).unwrap();
        assert_eq!(read(&by_store), (content.len(), None));
    }

    #[test]
    fn a_file_of_another_length_has_changed() {
        let shorter = body(b"0123456789", Recheck::ByStore);
        shorter.file.set_len(9).unwrap();
        assert_eq!(read(&shorter), (0, Some(FaultKind::SourceChanged)));
        let longer = body(b"0123456789", Recheck::ByStore);
        longer.file.set_len(11).unwrap();
        assert_eq!(read(&longer), (0, Some(FaultKind::SourceChanged)));
    }

    #[tokio::test]
    async fn an_empty_file_has_no_chunk_and_is_checked_before() {
        let mut wrong = body(b"", Recheck::HashAgain);
        assert!(FileChunks::start(wrong.clone(), None).unwrap().is_end_stream());
        wrong.digest = digest_of(b"x");
        assert!(FileChunks::start(wrong, None).is_err());
    }
}
