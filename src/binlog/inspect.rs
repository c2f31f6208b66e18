//! One full read of a segment: digest, head and walk.

use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

use super::damage::Damage;
use super::encrypted;
use super::facts::{Facts, Kind, Verdict};
use super::head::HeadHasher;
use super::walk::{WalkOptions, Walker};
use crate::gtid::{Added, Flavor};
use crate::segment::{Checksum, Coverage, Digest, Ending, Head};

/// Bytes read at a time.
const CHUNK: usize = 256 << 10;

/// All that one full read of a segment tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Bytes read.
    pub size: u64,
    /// SHA-256 of all of them.
    pub digest: Digest,
    /// SHA-256 of bytes 512 to the end, of a file that MySQL encrypted.
    pub digest_body: Option<Digest>,
    /// Its name before its body is read.
    pub head: Head,
    /// What the file is.
    pub kind: Kind,
    /// The key that opens it, of a file that MySQL encrypted.
    pub key_id: Option<String>,
    /// Whose server wrote it.
    pub flavor: Option<Flavor>,
    /// That server's version.
    pub server_version: Option<String>,
    /// Its events' checksum.
    pub checksum: Option<Checksum>,
    /// Whether a server start opened it.
    pub created_at_startup: Option<bool>,
    /// The in-use flag.
    pub in_use: Option<bool>,
    /// How it ends; `None` where encryption or damage hides that.
    pub ending: Option<Ending>,
    /// The file its ROTATE names.
    pub next_segment: Option<String>,
    /// Its history. `added` is `None` for a damaged segment.
    pub coverage: Coverage,
    /// Whole transactions up to the damage, of a damaged segment.
    pub added_before_damage: Option<Added>,
    /// Whole transactions, with and without GTID.
    pub transactions: Option<u64>,
    /// Transactions that began and never ended.
    pub unfinished_transactions: u64,
    /// Whole events at the top level.
    pub events: u64,
    /// INCIDENT events: the server says that changes may be missing.
    pub incidents: u64,
    /// Header seconds of the first event that has any.
    pub first_event_at: Option<u32>,
    /// Header seconds of the last event that has any.
    pub last_event_at: Option<u32>,
    /// Highest immediate commit time of a whole transaction, in microseconds.
    pub last_commit_at: Option<u64>,
    /// The judgement.
    pub verdict: Verdict,
    /// What keeps it from being sound.
    pub error: Option<Damage>,
    /// End of the last whole event.
    pub valid_up_to: u64,
    /// End of the last whole transaction, or of what stands between transactions.
    pub valid_up_to_transaction: u64,
    /// See [`Facts::is_left_by_restart`].
    pub is_left_by_restart: bool,
    /// What a human should know, though it is no damage.
    pub warnings: Vec<String>,
}

/// Reads a segment to its end, once.
///
/// # Errors
/// When the reader fails. What the bytes are is never an error here.
pub fn inspect(mut reader: impl Read) -> io::Result<Inspection> {
    let mut inspector = Inspector::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        match reader.read(&mut chunk) {
            Ok(0) => return Ok(inspector.finish()),
            Ok(count) => inspector.feed(chunk.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The same for a caller who has the bytes pass by anyway.
#[derive(Debug)]
pub struct Inspector {
    digest: Sha256,
    body: Sha256,
    body_from: u64,
    head: HeadHasher,
    walk: Walker,
}

impl Default for Inspector {
    fn default() -> Self {
        Self::new()
    }
}

impl Inspector {
    /// Has seen nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            digest: Sha256::new(),
            body: Sha256::new(),
            body_from: encrypted::BODY_AT,
            head: HeadHasher::new(),
            walk: Walker::new(WalkOptions::default()),
        }
    }

    /// Takes the next bytes of the file.
    pub fn feed(&mut self, chunk: &[u8]) {
        self.digest.update(chunk);
        self.head.feed(chunk);
        self.walk.feed(chunk);
        if self.walk.is_mysql_encrypted() {
            let skip = usize::try_from(self.body_from).unwrap_or(usize::MAX).min(chunk.len());
            self.body.update(chunk.get(skip..).unwrap_or_default());
        }
        self.body_from = self.body_from.saturating_sub(chunk.len() as u64);
    }

    /// All that was found, after the last byte.
    #[must_use]
    pub fn finish(self) -> Inspection {
        let digest = Digest::from_bytes(self.digest.finalize().into());
        let has_body = self.walk.is_mysql_encrypted() && self.body_from == 0;
        let digest_body = has_body.then(|| Digest::from_bytes(self.body.finalize().into()));
        let head = self.head.finish(digest);
        let facts = self.walk.finish();
        let is_left_by_restart = facts.is_left_by_restart();
        let key_id = match &facts.kind {
            Kind::MysqlEncrypted { key_id, .. } => key_id.clone(),
            Kind::Plain
            | Kind::MariadbEncrypted
            | Kind::InnodbPages
            | Kind::RelayLog
            | Kind::Torn
            | Kind::NotABinlog => None,
        };
        let Facts {
            size,
            kind,
            flavor,
            server_version,
            checksum,
            created_at_startup,
            in_use,
            ending,
            next_segment,
            coverage,
            added_before_damage,
            transactions,
            unfinished_transactions,
            events,
            incidents,
            first_event_at,
            last_event_at,
            last_commit_at,
            verdict,
            error,
            valid_up_to,
            valid_up_to_transaction,
            warnings,
        } = facts;
        Inspection {
            size,
            digest,
            digest_body,
            head,
            kind,
            key_id,
            flavor,
            server_version,
            checksum,
            created_at_startup,
            in_use,
            ending,
            next_segment,
            coverage,
            added_before_damage,
            transactions,
            unfinished_transactions,
            events,
            incidents,
            first_event_at,
            last_event_at,
            last_commit_at,
            verdict,
            error,
            valid_up_to,
            valid_up_to_transaction,
            is_left_by_restart,
            warnings,
        }
    }
}
