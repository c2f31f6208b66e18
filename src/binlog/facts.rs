//! What a walk over a segment found.

use serde::{Deserialize, Serialize};

use super::damage::Damage;
use crate::gtid::{Added, Flavor};
use crate::segment::{Checksum, Coverage, Ending};

/// What a file is, by its first bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A binlog file in clear.
    Plain,
    /// A file that MySQL encrypted; what its header says, when that can be read.
    MysqlEncrypted {
        /// The name of the key that opens it.
        key_id: Option<String>,
        /// The server's UUID, from the key's name.
        server_uuid: Option<String>,
    },
    /// A file whose events MariaDB encrypted.
    MariadbEncrypted,
    /// MariaDB's binlog in InnoDB pages.
    InnodbPages,
    /// A replica's relay log.
    RelayLog,
    /// Cut off inside its magic number or its first event.
    Torn,
    /// Anything else.
    NotABinlog,
}

/// The judgement over a whole file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Whole, and closed by the server.
    Sound,
    /// Sound up to its last whole event, but not closed.
    Unclosed,
    /// Bytes are missing, added or changed.
    Damaged,
    /// What it holds cannot be read.
    Encrypted,
    /// No segment of a server's binlog.
    NotABinlog,
}

/// What a walk over a segment found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Bytes seen.
    pub size: u64,
    /// What the file is.
    pub kind: Kind,
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
    /// What a human should know, though it is no damage.
    pub warnings: Vec<String>,
}

impl Facts {
    /// Whether the file is what a server leaves when it dies in it and is started again: MySQL
    /// cuts it back to its last whole transaction and clears the flag, MariaDB leaves it as it is.
    /// Either may leave one that is cut off before its first event ends. Only where a later start
    /// opened the next file does this mean anything.
    #[must_use]
    pub fn is_left_by_restart(&self) -> bool {
        let unclosed = self.verdict == Verdict::Unclosed;
        let no_end = self.ending == Some(Ending::None);
        match self.flavor {
            Some(Flavor::Mysql) => {
                unclosed
                    && no_end
                    && self.in_use == Some(false)
                    && self.valid_up_to_transaction == self.size
            }
            Some(Flavor::Mariadb) => {
                let hidden = self.verdict == Verdict::Encrypted;
                ((unclosed && no_end) || hidden) && self.in_use == Some(true)
            }
            None => unclosed,
        }
    }
}
