//! `docs/failures.md` and the tables say the same, row by row.

use std::collections::{BTreeMap, BTreeSet};

use super::shapes::{Fact, Place};
use super::{Cause, Classified, codes, shapes, statuses};
use crate::fault::FaultKind;

/// Class, scope and cause, as the document writes them.
type Says = (String, String, String);

fn says(rule: &Classified) -> Says {
    (rule.class_text(), rule.scope.to_string(), rule.cause.to_string())
}

pub(super) fn kinds() -> Vec<FaultKind> {
    use FaultKind as K;
    // A new kind does not compile until it stands in the table of shapes; here it has to be listed.
    vec![
        K::Answered,
        K::AlreadyExists,
        K::PreconditionFailed,
        K::NotFound,
        K::Unproven,
        K::Transport,
        K::Tls,
        K::Timeout,
        K::Credentials,
        K::Construction,
        K::LocalIo,
        K::SourceChanged,
        K::SourceGone,
        K::SourceDamaged,
        K::SourceRefused,
        K::Damaged,
        K::Conflict,
        K::LeaseLost,
        K::Undecodable,
        K::Other,
    ]
}

fn shape_keys(kind: FaultKind, row: &shapes::Row) -> Vec<String> {
    let kind = serde_json::to_value(kind).unwrap();
    let place = match row.place {
        Place::Any => "",
        Place::SegmentFile => "segment file: ",
        Place::Client => "client: ",
        Place::Store => "store: ",
    };
    let base = format!("{place}{}", kind.as_str().unwrap());
    match row.fact {
        Fact::Any => vec![base],
        Fact::Answer => vec![format!("{base} answer")],
        Fact::Io(names) | Fact::Code(names) | Fact::CodeHas(names) => {
            names.iter().map(|name| format!("{base} {name}")).collect()
        }
    }
}

/// Every row of every table, by its name in the document.
fn tables() -> BTreeMap<String, Says> {
    let mut all = BTreeMap::new();
    let mut add = |key: String, rule: &Classified| {
        assert!(all.insert(key.clone(), says(rule)).is_none(), "twice in the tables: {key}");
    };
    for row in codes::CODES {
        row.codes.iter().for_each(|code| add((*code).to_owned(), &row.rule));
    }
    for row in statuses::STATUSES {
        for (first, last) in row.ranges {
            let to = if first == last { String::new() } else { format!("-{last}") };
            add(format!("HTTP {first}{to}"), &row.rule);
        }
    }
    for kind in kinds() {
        for row in shapes::rows(kind) {
            shape_keys(kind, row).into_iter().for_each(|key| add(key, &row.rule));
        }
    }
    all
}

/// Every row of the document.
fn document() -> BTreeMap<String, Says> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/failures.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut all = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [keys, class, scope, cause, advice] = cells[..] else {
            panic!("not five columns: {line}");
        };
        assert!(!advice.is_empty(), "nothing to do about {line}");
        for key in keys.split('`').skip(1).step_by(2) {
            let says = (class.to_owned(), scope.to_owned(), cause.to_owned());
            assert!(all.insert(key.to_owned(), says).is_none(), "twice in the document: {key}");
        }
    }
    all
}

#[test]
fn the_document_and_the_tables_say_the_same() {
    let (tables, document) = (tables(), document());
    assert!(document.len() > 150, "{}", document.len());
    for (key, says) in &tables {
        assert_eq!(document.get(key), Some(says), "docs/failures.md about {key}");
    }
    for key in document.keys() {
        assert!(tables.contains_key(key), "only in docs/failures.md: {key}");
    }
}

#[test]
fn every_cause_has_a_row() {
    let named: BTreeSet<String> = document().into_values().map(|(_, _, cause)| cause).collect();
    for cause in Cause::ALL {
        assert!(named.contains(cause.as_str()), "no row of docs/failures.md has {cause}");
    }
}
