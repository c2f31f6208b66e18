//! Sets and states against naive models, and broken input that must not panic.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::gtid::{Added, Flavor, MariadbRanges, MariadbState, MysqlSet, Previous, Tag, Uuid};

/// One insertion: which uuid, which tag, first number, how many more.
type Insertion = (u8, u8, u64, u64);
type Model = BTreeSet<(u8, u8, u64)>;

const TAGS: [&str; 3] = ["", "_b", "a"];

fn uuid(which: u8) -> Uuid {
    // Close in text and far in bytes, so that order is tested.
    let mut bytes = [0x11; 16];
    bytes[usize::from(which) * 7] = 0xf0;
    Uuid::from_bytes(bytes)
}

fn tag(which: u8) -> Tag {
    TAGS[usize::from(which)].parse().unwrap()
}

fn insertions() -> impl Strategy<Value = Vec<Insertion>> {
    prop::collection::vec((0_u8..3, 0_u8..3, 1_u64..40, 0_u64..6), 0..25)
}

fn build(insertions: &[Insertion]) -> (MysqlSet, Model) {
    let (mut set, mut model) = (MysqlSet::new(), Model::new());
    for (u, t, first, more) in insertions {
        set.insert_range(uuid(*u), &tag(*t), *first, first + more);
        model.extend((*first..=first + more).map(|gno| (*u, *t, gno)));
    }
    (set, model)
}

/// The set of a model, one number after the other.
fn of_model(model: &Model) -> MysqlSet {
    let mut set = MysqlSet::new();
    for (u, t, gno) in model {
        set.insert(uuid(*u), &tag(*t), *gno);
    }
    set
}

fn intervals_of(model: &Model) -> usize {
    model.iter().filter(|(u, t, gno)| !model.contains(&(*u, *t, gno - 1))).count()
}

proptest! {
    #[test]
    fn a_set_is_what_was_put_in(list in insertions()) {
        let (set, model) = build(&list);
        prop_assert_eq!(&set, &of_model(&model));
        prop_assert_eq!(set.interval_count(), intervals_of(&model));
        prop_assert_eq!(set.count(), model.len() as u64);
        prop_assert_eq!(set.is_empty(), model.is_empty());
        let mut reversed = list;
        reversed.reverse();
        prop_assert_eq!(set, build(&reversed).0);
    }

    #[test]
    fn algebra_is_that_of_sets(a in insertions(), b in insertions()) {
        let ((a, model_a), (b, model_b)) = (build(&a), build(&b));
        prop_assert_eq!(a.union(&b), of_model(&(&model_a | &model_b)));
        prop_assert_eq!(a.difference(&b), of_model(&(&model_a - &model_b)));
        prop_assert_eq!(a.intersection(&b), of_model(&(&model_a & &model_b)));
        prop_assert_eq!(a.contains(&b), model_a.is_superset(&model_b));
        prop_assert_eq!(a.is_disjoint(&b), model_a.is_disjoint(&model_b));
        prop_assert!(a.union(&b).contains(&b) && a.contains(&a.intersection(&b)));
        let only = a.only(|u| u == uuid(1));
        prop_assert_eq!(only, of_model(&model_a.iter().copied().filter(|g| g.0 == 1).collect()));
    }

    #[test]
    fn a_set_survives_its_text_and_its_bytes(list in insertions()) {
        let (set, _) = build(&list);
        let text = set.to_string();
        prop_assert!(!text.contains(char::is_whitespace));
        prop_assert_eq!(&text.parse::<MysqlSet>().unwrap(), &set);
        prop_assert_eq!(&text.to_uppercase().parse::<MysqlSet>().unwrap(), &set);
        prop_assert_eq!(&MysqlSet::from_binary(&set.to_binary()).unwrap(), &set);
    }

    #[test]
    fn previous_and_added_agree(a in insertions(), b in insertions()) {
        let ((a, _), (b, _)) = (build(&a), build(&b));
        let (before, own) = (Previous::Mysql(a.clone()), Added::Mysql(b.clone()));
        let after = before.after(&own).unwrap();
        prop_assert!(after.covers(&before) && after.holds(&own));
        prop_assert_eq!(after.beyond(&before), Some(Added::Mysql(b.difference(&a))));
        prop_assert!(before.beyond(&after).unwrap().is_empty());
    }

    #[test]
    fn broken_bytes_never_panic(
        list in insertions(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut body = build(&list).0.to_binary();
        for (at, byte) in changes {
            let at = at.index(body.len());
            body[at] = byte;
        }
        if let Ok(set) = MysqlSet::from_binary(&body) {
            prop_assert_eq!(MysqlSet::from_binary(&set.to_binary()).unwrap(), set);
        }
        let cut = cut.index(body.len());
        if let Err(error) = MysqlSet::from_binary(&body[..cut]) {
            prop_assert!(error.offset <= cut);
        }
    }

    #[test]
    fn any_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..80)) {
        for error in [MysqlSet::from_binary(&body).err(), MariadbState::from_binary(&body).err()] {
            prop_assert!(error.is_none_or(|e| e.offset <= body.len()));
        }
    }

    #[test]
    fn any_text_never_panics(text in "[0-9a-f:, {}é_x-]{0,60}", list in insertions()) {
        let whole = format!("{}{text}", build(&list).0);
        for text in [&text, &whole] {
            for flavor in [Flavor::Mysql, Flavor::Mariadb] {
                let errors = [Previous::parse(flavor, text).err(), Added::parse(flavor, text).err()];
                prop_assert!(errors.iter().flatten().all(|e| text.is_char_boundary(e.offset)));
            }
        }
    }
}

/// Domain, server, number.
type Pushes = Vec<(u32, u32, u64)>;

fn pushes() -> impl Strategy<Value = Pushes> {
    prop::collection::vec((0_u32..3, 1_u32..4, 1_u64..20), 0..15)
}

fn state(pushes: &Pushes) -> (MariadbState, BTreeMap<(u32, u32), u64>) {
    let (mut state, mut model) = (MariadbState::new(), BTreeMap::new());
    for (domain, server, seq) in pushes {
        state.push(*domain, *server, *seq);
        let held = model.entry((*domain, *server)).or_insert(0);
        *held = seq.max(held).to_owned();
    }
    (state, model)
}

proptest! {
    #[test]
    fn a_state_is_what_was_pushed(list in pushes()) {
        let (state, model) = state(&list);
        let held: BTreeMap<_, _> = state.pairs().map(|p| ((p.domain, p.server), p.seq)).collect();
        prop_assert_eq!(held, model);
        for (domain, server, _) in &list {
            let last = list.iter().rev().find(|push| push.0 == *domain).unwrap();
            prop_assert_eq!(state.newest(*domain).unwrap().server, last.1);
            prop_assert!(state.seq(*domain, *server).is_some());
        }
        prop_assert_eq!(&state.to_string().parse::<MariadbState>().unwrap(), &state);
        prop_assert_eq!(&MariadbState::from_binary(&state.to_binary()).unwrap(), &state);
        let canonical: MariadbState = state.canonical().parse().unwrap();
        prop_assert!(canonical.covers(&state) && state.covers(&canonical));
    }

    #[test]
    fn states_compare_pair_by_pair(a in pushes(), b in pushes()) {
        let ((a, model_a), (b, model_b)) = (state(&a), state(&b));
        let covered = model_b.iter().all(|(k, seq)| model_a.get(k).is_some_and(|s| s >= seq));
        prop_assert_eq!(a.covers(&b), covered);
        let beyond = b.beyond(&a);
        prop_assert_eq!(beyond.is_empty(), covered);
        let raised = a.raised(&beyond);
        prop_assert!(raised.covers(&b) && raised.covers(&a) && raised.holds(&beyond));
        for (domain, server, lowest, highest) in beyond.ranges() {
            let have = model_a.get(&(domain, server)).copied().unwrap_or(0);
            prop_assert_eq!((lowest, highest), (have + 1, model_b[&(domain, server)]));
        }
    }

    #[test]
    fn a_difference_of_ranges_never_loses_a_number(a in pushes(), b in pushes()) {
        let build = |list: &Pushes| {
            let mut ranges = MariadbRanges::new();
            list.iter().for_each(|(domain, server, seq)| ranges.insert(*domain, *server, *seq));
            ranges
        };
        let (a, b) = (build(&a), build(&b));
        let numbers = |ranges: &MariadbRanges| -> BTreeSet<(u32, u32, u64)> {
            ranges.ranges().flat_map(|(d, s, from, to)| (from..=to).map(move |n| (d, s, n))).collect()
        };
        let (all_a, all_b) = (numbers(&a), numbers(&b));
        let rest = numbers(&a.difference(&b));
        prop_assert!(rest.is_superset(&(&all_a - &all_b)) && rest.is_subset(&all_a));
        prop_assert_eq!(numbers(&a.intersection(&b)), &all_a & &all_b);
        prop_assert_eq!(a.contains(&b), all_a.is_superset(&all_b));
        prop_assert_eq!(a.is_disjoint(&b), all_a.is_disjoint(&all_b));
        prop_assert!(a.union(&b).contains(&a) && a.union(&b).contains(&b));
        prop_assert_eq!(a.to_string().parse::<MariadbRanges>().unwrap(), a);
    }
}
