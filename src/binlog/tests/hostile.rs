//! Real files with bytes flipped, cut, moved: the walk ends, never panics, and says something.

use std::path::Path;
use std::sync::OnceLock;

use proptest::prelude::*;

use crate::binlog::{Facts, Inspection, Verdict, WalkOptions, Walker, inspect, peek};

const FILES: &[&str] = &[
    "mysql97-basic/binlog.000006",
    "mysql97-tagged-gtid/binlog.000005",
    "mysql97-compressed/binlog.000005",
    "mysql97-nochecksum/binlog.000004",
    "mysql97-restart/binlog.000005",
    "mysql97-gtidoff/binlog.000001",
    "mysql97-encrypted/binlog.000005",
    "mysql97-crash-truncated/at-crash/binlog.000002",
    "mariadb1011-basic/binlog.000006",
    "mariadb1011-multidomain/binlog.000005",
    "mariadb1011-restart/binlog.000005",
];

fn files() -> &'static [Vec<u8>] {
    static BYTES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/binlogs");
        FILES.iter().map(|name| std::fs::read(folder.join(name)).unwrap()).collect()
    })
}

#[derive(Debug, Clone)]
enum Mutation {
    Flip { at: prop::sample::Index, bit: u8 },
    Cut { at: prop::sample::Index },
    Remove { at: prop::sample::Index, count: usize },
    Insert { at: prop::sample::Index, bytes: Vec<u8> },
    Repeat { at: prop::sample::Index, count: usize },
    Zero { at: prop::sample::Index, count: usize },
    Word { at: prop::sample::Index, value: u32 },
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<prop::sample::Index>;
    // The first events decide most: half of the flips land there.
    prop_oneof![
        (at(), 0..8_u8).prop_map(|(at, bit)| Mutation::Flip { at, bit }),
        at().prop_map(|at| Mutation::Cut { at }),
        (at(), 1..200_usize).prop_map(|(at, count)| Mutation::Remove { at, count }),
        (at(), prop::collection::vec(any::<u8>(), 1..60))
            .prop_map(|(at, bytes)| Mutation::Insert { at, bytes }),
        (at(), 1..400_usize).prop_map(|(at, count)| Mutation::Repeat { at, count }),
        (at(), 1..400_usize).prop_map(|(at, count)| Mutation::Zero { at, count }),
        (at(), prop_oneof![Just(0), Just(u32::MAX), Just(19), any::<u32>()])
            .prop_map(|(at, value)| Mutation::Word { at, value }),
    ]
}

fn mutate(bytes: &mut Vec<u8>, mutation: Mutation, within: usize) {
    let size = bytes.len().min(within).max(1);
    let range = |bytes: &[u8], at: usize, count: usize| at..(at + count).min(bytes.len()).max(at);
    match mutation {
        _ if bytes.is_empty() => {}
        Mutation::Flip { at, bit } => bytes[at.index(size)] ^= 1 << bit,
        Mutation::Cut { at } => bytes.truncate(at.index(size)),
        Mutation::Remove { at, count } => {
            drop(bytes.drain(range(bytes, at.index(size), count)));
        }
        Mutation::Insert { at, bytes: more } => {
            let at = at.index(size);
            bytes.splice(at..at, more);
        }
        Mutation::Repeat { at, count } => {
            let range = range(bytes, at.index(size), count);
            let copy = bytes[range.clone()].to_vec();
            bytes.splice(range.end..range.end, copy);
        }
        Mutation::Zero { at, count } => {
            let range = range(bytes, at.index(size), count);
            bytes[range].fill(0);
        }
        Mutation::Word { at, value } => {
            let range = range(bytes, at.index(size), 4);
            for (byte, new) in bytes[range].iter_mut().zip(value.to_le_bytes()) {
                *byte = new;
            }
        }
    }
}

/// Puts right CRC32s and positions into every event that can be framed, so that the decoders see
/// bodies that no checksum keeps from them.
fn mend(bytes: &mut [u8]) {
    let mut at = 4;
    let has_crc = bytes.get(4 + 9..4 + 11).is_some_and(|length| length != [0, 0]);
    while let Some(field) = bytes.get(at + 9..at + 13) {
        let length = u32::from_le_bytes(field.try_into().unwrap()) as usize;
        let end = at + length;
        if length < 23 || end > bytes.len() || !has_crc {
            return;
        }
        bytes[at + 13..at + 17].copy_from_slice(&(end as u32).to_le_bytes());
        if at == 4 {
            bytes[at + 17] &= !1;
        }
        let crc = crc32fast::hash(&bytes[at..end - 4]);
        bytes[end - 4..end].copy_from_slice(&crc.to_le_bytes());
        at = end;
    }
}

fn walk_in(bytes: &[u8], sizes: &[usize]) -> Facts {
    let mut walk = Walker::new(WalkOptions::default());
    let mut rest = bytes;
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (chunk, more) = rest.split_at((*size).min(rest.len()));
        walk.feed(chunk);
        rest = more;
    }
    walk.finish()
}

fn check(bytes: &[u8], sizes: &[usize]) -> Inspection {
    let seen = inspect(bytes).unwrap();
    let parts = walk_in(bytes, sizes);
    let whole = walk_in(bytes, &[usize::MAX]);
    assert_eq!(parts, whole);
    assert_eq!(whole.error, seen.error);
    assert_eq!(peek(bytes).unwrap().head, seen.head);
    assert_eq!(seen.size, bytes.len() as u64);
    assert!(seen.valid_up_to <= seen.size);
    assert!(seen.valid_up_to_transaction <= seen.valid_up_to);
    assert_eq!(seen.verdict == Verdict::Sound, seen.error.is_none());
    if let Some(damage) = &seen.error {
        assert!(damage.offset <= seen.size, "{damage}");
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_files_are_judged_whatever_the_chunks(
        file in 0..FILES.len(),
        mutations in prop::collection::vec((mutation(), any::<bool>()), 0..4),
        mended in any::<bool>(),
        sizes in prop::collection::vec(1..700_usize, 1..8),
    ) {
        let mut bytes = files()[file].clone();
        for (mutation, early) in mutations {
            mutate(&mut bytes, mutation, if early { 300 } else { usize::MAX });
        }
        if mended {
            mend(&mut bytes);
        }
        check(&bytes, &sizes);
    }

    #[test]
    fn any_bytes_are_judged(
        magic in prop_oneof![Just(b"\xfebin".to_vec()), Just(b"\xfdbin".to_vec()), Just(vec![])],
        tail in prop::collection::vec(any::<u8>(), 0..700),
        sizes in prop::collection::vec(1..50_usize, 1..4),
    ) {
        let seen = check(&[magic, tail].concat(), &sizes);
        prop_assert_ne!(seen.verdict, Verdict::Sound);
    }

    #[test]
    fn one_flipped_bit_under_a_checksum_is_never_sound(
        at in any::<prop::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let mut bytes = files()[0].clone();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let seen = check(&bytes, &[4096]);
        prop_assert_ne!(seen.verdict, Verdict::Sound, "byte {} bit {}", at, bit);
    }
}
