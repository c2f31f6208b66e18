//! What a store is able to, found by trying.
//!
//! Many S3-compatible servers take headers that they do not honour, and answer 200. Only the object
//! under the canary's key is written, and nothing is deleted.
//!
//! **Invariants.** A capability is true only where the refusal was seen *and* the old object was
//! still there afterwards. A fault that says nothing about the capability (no answer, no
//! permission, 5xx) is returned, never taken as "no".

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{PutMode, Store, digest_of, get_small};
use crate::fault::{Fault, FaultKind, Operation};
use crate::segment::Digest;

/// A canary is about 100 bytes.
const CANARY_MAX: usize = 4096;

/// What a store honours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// `If-None-Match: *` on a put.
    pub create_only_put: bool,
    /// `If-None-Match: *` when an upload in parts is completed.
    pub create_only_multipart: bool,
    /// `If-Match` on a put.
    pub conditional_replace: bool,
    /// A put with a wrong SHA-256 is rejected and leaves the old object.
    pub rejects_wrong_put: bool,
    /// A part with a wrong SHA-256 is rejected.
    pub rejects_wrong_part: bool,
}

/// How a store took a request that it should refuse.
enum Outcome {
    Refused,
    Accepted,
    /// The feature itself is answered with an error, so it cannot be used.
    Unsupported,
}

/// Sorts the answer to a wrong digest.
fn digest_outcome<T>(answer: Result<T, Fault>) -> Result<Outcome, Fault> {
    match answer {
        Ok(_) => Ok(Outcome::Accepted),
        // It took other bytes than ours, and said so afterwards.
        Err(fault) if fault.kind == FaultKind::Unproven => Ok(Outcome::Accepted),
        Err(fault) if fault.kind == FaultKind::Answered && fault.http_status == Some(400) => {
            Ok(Outcome::Refused)
        }
        Err(fault) if unsupported(&fault) => Ok(Outcome::Unsupported),
        Err(fault) => Err(fault),
    }
}

/// Sorts the answer to a condition that does not hold.
fn condition_outcome<T>(answer: Result<T, Fault>) -> Result<Outcome, Fault> {
    match answer {
        Ok(_) => Ok(Outcome::Accepted),
        Err(fault)
            if matches!(fault.kind, FaultKind::AlreadyExists | FaultKind::PreconditionFailed) =>
        {
            Ok(Outcome::Refused)
        }
        Err(fault) if unsupported(&fault) => Ok(Outcome::Unsupported),
        Err(fault) => Err(fault),
    }
}

fn unsupported(fault: &Fault) -> bool {
    let codes = [
        "NotImplemented",
        "InvalidArgument",
        "InvalidRequest",
        "UnsupportedArgument",
        "MethodNotAllowed",
    ];
    fault.kind == FaultKind::Answered
        && (fault.http_status == Some(501)
            || fault.code.as_deref().is_some_and(|code| codes.contains(&code)))
}

struct Canary<'a> {
    store: &'a dyn Store,
    key: &'a str,
    now: Bytes,
}

impl Canary<'_> {
    fn another(word: &str) -> Bytes {
        format!("binlog-archiver canary, {word}, {:032x}\n", fastrand::u128(..)).into()
    }

    /// Whether the object still is what it was. If not, takes what it is now.
    async fn unchanged(&mut self) -> Result<bool, Fault> {
        let found = get_small(self.store, self.key, CANARY_MAX).await?;
        let Some((bytes, _)) = found else {
            let message = "the canary is gone right after it was stored";
            return Err(Fault::new(Operation::Get, FaultKind::Unproven, message).at(self.key));
        };
        let same = bytes == self.now;
        self.now = bytes;
        Ok(same)
    }

    /// Puts new bytes, and says whether that was refused with the old ones left.
    async fn refused(
        &mut self,
        answer: Result<Outcome, Fault>,
        sent: &Bytes,
    ) -> Result<bool, Fault> {
        match answer? {
            Outcome::Accepted => {
                self.now = sent.clone();
                Ok(false)
            }
            Outcome::Refused => self.unchanged().await,
            Outcome::Unsupported => {
                self.unchanged().await?;
                Ok(false)
            }
        }
    }

    async fn replace(&mut self, word: &str) -> Result<Option<String>, Fault> {
        let bytes = Self::another(word);
        let stored =
            self.store.put(self.key, bytes.clone(), &digest_of(&bytes), PutMode::Replace).await?;
        self.now = bytes;
        if self.unchanged().await? {
            return Ok(stored.etag);
        }
        let message = "the store says it took the canary, and gives other bytes back";
        Err(Fault::new(Operation::Put, FaultKind::Unproven, message).at(self.key))
    }

    async fn rejects_wrong_put(&mut self) -> Result<bool, Fault> {
        let bytes = Self::another("wrong digest");
        let answer =
            self.store.put(self.key, bytes.clone(), &wrong(&bytes), PutMode::Replace).await;
        self.refused(digest_outcome(answer), &bytes).await
    }

    async fn create_only_put(&mut self) -> Result<bool, Fault> {
        let bytes = Self::another("create");
        let answer =
            self.store.put(self.key, bytes.clone(), &digest_of(&bytes), PutMode::Create).await;
        self.refused(condition_outcome(answer), &bytes).await
    }

    async fn conditional_replace(&mut self) -> Result<bool, Fault> {
        let Some(old) = self.replace("before update").await? else { return Ok(false) };
        let Some(new) = self.replace("before update").await? else { return Ok(false) };
        let bytes = Self::another("update");
        let digest = digest_of(&bytes);
        let stale = PutMode::Update { etag: &old };
        let answer = self.store.put(self.key, bytes.clone(), &digest, stale).await;
        if !self.refused(condition_outcome(answer), &bytes).await? {
            return Ok(false);
        }
        let right = PutMode::Update { etag: &new };
        let answer = self.store.put(self.key, bytes.clone(), &digest, right).await;
        match condition_outcome(answer)? {
            Outcome::Accepted => {
                self.now = bytes;
                self.unchanged().await
            }
            Outcome::Refused | Outcome::Unsupported => Ok(false),
        }
    }

    /// Whether a wrong part is rejected, and whether completing creates only.
    async fn multipart(&mut self) -> Result<(bool, bool), Fault> {
        let upload = match self.store.multipart(self.key).await {
            Ok(upload) => upload,
            Err(fault) if unsupported(&fault) => return Ok((false, false)),
            Err(fault) => return Err(fault),
        };
        let bytes = Self::another("part");
        let wrong_part = upload.part(1, bytes.clone(), &wrong(&bytes)).await;
        let rejects = match digest_outcome(wrong_part) {
            Ok(outcome) => matches!(outcome, Outcome::Refused),
            Err(fault) => {
                upload.abort().await?;
                return Err(fault);
            }
        };
        let part = match upload.part(1, bytes.clone(), &digest_of(&bytes)).await {
            Ok(part) => part,
            Err(fault) => {
                upload.abort().await?;
                return Err(fault);
            }
        };
        // A refused upload is aborted by `complete` itself.
        let answer = upload.complete(vec![part], PutMode::Create).await;
        let creates = self.refused(condition_outcome(answer), &bytes).await?;
        Ok((rejects, creates))
    }
}

fn wrong(bytes: &Bytes) -> Digest {
    let mut other = bytes.to_vec();
    other.push(b'!');
    digest_of(&other)
}

/// Tries everything on the object `canary_key`, which is overwritten several times.
pub async fn probe(store: &dyn Store, canary_key: &str) -> Result<Capabilities, Fault> {
    if store.is_local() {
        return Ok(Capabilities {
            create_only_put: true,
            create_only_multipart: true,
            conditional_replace: true,
            rejects_wrong_put: true,
            rejects_wrong_part: true,
        });
    }
    let mut canary = Canary { store, key: canary_key, now: Bytes::new() };
    canary.replace("first").await?;
    let rejects_wrong_put = canary.rejects_wrong_put().await?;
    let create_only_put = canary.create_only_put().await?;
    let conditional_replace = canary.conditional_replace().await?;
    let (rejects_wrong_part, create_only_multipart) = canary.multipart().await?;
    Ok(Capabilities {
        create_only_put,
        create_only_multipart,
        conditional_replace,
        rejects_wrong_put,
        rejects_wrong_part,
    })
}
