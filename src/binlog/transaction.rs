//! Which GTIDs a segment holds as whole transactions.

use super::event::{Header, kind};
use super::gtid_event::{Gtid, Opening};
use super::query::{self, Statement};
use crate::gtid::{Added, Flavor, MariadbRanges, MysqlSet, Tag, Uuid};

/// Intervals of one segment's set above which its GTIDs are given up as unknown: a bound on memory
/// that no real server reaches in one file.
const INTERVALS_MAX: usize = 4 << 20;

/// How often that bound is looked at.
const INSERTIONS_BETWEEN_CHECKS: u64 = 1 << 16;

/// What ends the transaction that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// MySQL, right after the GTID: a statement that begins no transaction is one by itself.
    FirstStatement,
    /// MariaDB, standalone: any statement.
    NextStatement,
    /// XID, COMMIT, ROLLBACK, XA PREPARE.
    Commit,
}

#[derive(Debug)]
struct Open {
    gtid: Gtid,
    committed_at: u64,
    until: Until,
}

/// Consecutive numbers that are not in the set yet: one insertion for the many that follow.
#[derive(Debug)]
struct Run {
    uuid: Uuid,
    tag: Tag,
    first: u64,
    last: u64,
}

/// Follows the events of a segment and collects what is whole.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    open: Option<Open>,
    mysql: MysqlSet,
    mariadb: MariadbRanges,
    run: Option<Run>,
    insertions: u64,
    /// Whole transactions, with and without GTID.
    pub(super) whole: u64,
    /// Whole transactions without GTID.
    pub(super) anonymous: u64,
    /// Transactions that another one or the segment's end cut short.
    pub(super) unfinished: u64,
    /// Highest commit time of a whole transaction, in microseconds; 0 when none is given.
    pub(super) committed_at: u64,
    /// A GTID event could not be decoded, or there are too many intervals.
    unknown: bool,
}

impl Transactions {
    /// Whether a transaction is open.
    pub(super) const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// A GTID event.
    pub(super) fn begin(&mut self, opening: Opening) {
        self.cut_short();
        let until = match opening.gtid {
            Gtid::Mariadb { .. } if opening.standalone => Until::NextStatement,
            Gtid::Mariadb { .. } => Until::Commit,
            Gtid::Mysql { .. } | Gtid::Anonymous | Gtid::Unknown => Until::FirstStatement,
        };
        let Opening { gtid, committed_at, standalone: _ } = opening;
        self.open = Some(Open { gtid, committed_at, until });
    }

    /// The server began something else, so what is open will never be whole.
    pub(super) fn cut_short(&mut self) {
        if self.open.take().is_some() {
            self.unfinished += 1;
        }
    }

    /// Any other event.
    pub(super) fn event(&mut self, header: &Header, body: &[u8]) {
        match header.kind {
            kind::QUERY => self.statement(query::classify(body)),
            kind::MARIADB_QUERY_COMPRESSED | kind::EXECUTE_LOAD_QUERY => {
                self.statement(Statement::Plain);
            }
            kind::XID | kind::XA_PREPARE | kind::TRANSACTION_PAYLOAD => self.end(),
            kind::INCIDENT if self.until() == Some(Until::FirstStatement) => self.end(),
            _ => {}
        }
    }

    /// Whether an event of this kind, outside any transaction, belongs to one that is to come.
    pub(super) const fn leads_in(kind: u8) -> bool {
        matches!(
            kind,
            kind::INTVAR
                | kind::RAND
                | kind::USER_VAR
                | kind::ROWS_QUERY
                | kind::PARTIAL_UPDATE_ROWS
                | kind::TABLE_MAP..=kind::DELETE_ROWS_V1
                | 30..=kind::DELETE_ROWS
                | kind::MARIADB_ANNOTATE_ROWS
                | 166..=kind::MARIADB_DELETE_ROWS_COMPRESSED
        )
    }

    fn until(&self) -> Option<Until> {
        self.open.as_ref().map(|open| open.until)
    }

    fn statement(&mut self, statement: Statement) {
        match (self.until(), statement) {
            // Servers before GTIDs, and MySQL 5.6 without them, announce no transaction.
            (None, Statement::Begins) => {
                let gtid = Gtid::Anonymous;
                self.open = Some(Open { gtid, committed_at: 0, until: Until::Commit });
            }
            (None, Statement::Plain) => {
                self.whole += 1;
                self.anonymous += 1;
            }
            (None, Statement::Ends) => {}
            (Some(Until::FirstStatement), Statement::Begins) => {
                if let Some(open) = &mut self.open {
                    open.until = Until::Commit;
                }
            }
            (Some(Until::FirstStatement), Statement::Plain | Statement::Ends)
            | (Some(Until::NextStatement), _)
            | (Some(Until::Commit), Statement::Ends) => self.end(),
            (Some(Until::Commit), Statement::Begins | Statement::Plain) => {}
        }
    }

    fn end(&mut self) {
        let Some(open) = self.open.take() else {
            return;
        };
        self.whole += 1;
        self.committed_at = self.committed_at.max(open.committed_at);
        match open.gtid {
            Gtid::Mysql { uuid, tag, gno } => self.count(uuid, tag, gno),
            Gtid::Mariadb { domain, server, seq } => {
                self.mariadb.insert(domain, server, seq);
                self.bound_memory();
            }
            Gtid::Anonymous => self.anonymous += 1,
            Gtid::Unknown => self.unknown = true,
        }
    }

    fn count(&mut self, uuid: Uuid, tag: Tag, gno: u64) {
        if let Some(run) = &mut self.run
            && run.last.checked_add(1) == Some(gno)
            && run.uuid == uuid
            && run.tag == tag
        {
            run.last = gno;
            return;
        }
        self.flush();
        self.run = Some(Run { uuid, tag, first: gno, last: gno });
    }

    fn flush(&mut self) {
        let Some(run) = self.run.take() else {
            return;
        };
        if self.unknown {
            return;
        }
        self.mysql.insert_range(run.uuid, &run.tag, run.first, run.last);
        self.bound_memory();
    }

    fn bound_memory(&mut self) {
        self.insertions += 1;
        if self.insertions.is_multiple_of(INSERTIONS_BETWEEN_CHECKS)
            && self.mysql.interval_count() + self.mariadb.ranges().count() > INTERVALS_MAX
        {
            self.unknown = true;
            self.mysql = MysqlSet::new();
            self.mariadb = MariadbRanges::new();
        }
    }

    /// The GTIDs of whole transactions; `None` when one of them is not known.
    pub(super) fn added(mut self, flavor: Flavor) -> Option<Added> {
        self.flush();
        if self.unknown {
            return None;
        }
        Some(match flavor {
            Flavor::Mysql => Added::Mysql(self.mysql),
            Flavor::Mariadb => Added::Mariadb(self.mariadb),
        })
    }
}
