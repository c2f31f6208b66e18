//! Tests of the two flavors through their public face.

mod mariadb;
mod model;
mod mysql_binary;
mod mysql_text;

use super::{Added, Flavor, Previous};

/// Written `u` and `v` in the tables.
const U: &str = "11111111-1111-1111-1111-111111111111";
const V: &str = "22222222-2222-2222-2222-222222222222";

/// `u` and `v` of a table's text, made whole.
fn whole(text: &str) -> String {
    let mut out = String::new();
    let mut begins = true;
    for c in text.chars() {
        match c {
            'u' if begins => out.push_str(U),
            'v' if begins => out.push_str(V),
            'V' if begins => out.push_str(&V.to_uppercase()),
            other => out.push(other),
        }
        begins = matches!(c, ',' | ' ' | '+' | '{' | '\n');
    }
    out
}

fn mysql(text: &str) -> Previous {
    Previous::parse(Flavor::Mysql, &whole(text)).unwrap()
}

fn mariadb(text: &str) -> Previous {
    Previous::parse(Flavor::Mariadb, text).unwrap()
}

fn added(flavor: Flavor, text: &str) -> Added {
    Added::parse(flavor, &whole(text)).unwrap()
}

#[test]
fn a_chain_of_mysql_sets() {
    let own = added(Flavor::Mysql, "u:4-6:tag:1");
    let after = mysql("u:1-3").after(&own).unwrap();
    assert_eq!(after, mysql("u:1-6:tag:1"));
    assert!(after.covers(&mysql("u:2-5")));
    assert!(after.covers(&mysql("")));
    assert!(!after.covers(&mysql("u:7")));
    assert!(!after.covers(&mysql("u:tag:2")));
    assert!(!after.covers(&mysql("v:1")));
    let next = mysql("u:1-9:tag:1,v:1-2");
    assert_eq!(next.beyond(&after).unwrap().to_string(), whole("u:7-9,v:1-2"));
    assert_eq!(next.beyond(&after).unwrap().count(), 5);
    assert!(after.beyond(&next).unwrap().is_empty());
    assert!(after.holds(&own) && !mysql("u:1-4").holds(&own));
    assert_eq!(after.canonical(), after.to_string());
}

#[test]
fn a_chain_of_mariadb_states() {
    let own = added(Flavor::Mariadb, "0-7-4:9,0-8-10,3-7-1:2");
    let after = mariadb("0-7-3,5-99-2").after(&own).unwrap();
    // 0-8-10 is the highest of its domain, so the newest.
    assert_eq!(after.to_string(), "0-7-9,0-8-10,3-7-2,5-99-2");
    assert!(after.covers(&mariadb("0-7-9")));
    assert!(after.covers(&mariadb("")));
    assert!(!after.covers(&mariadb("0-7-10")));
    assert!(!after.covers(&mariadb("0-9-1")), "a pair we do not have is not covered");
    let next = mariadb("0-7-9,0-8-12,3-7-2,5-99-2,6-1-3,7-1-1");
    assert_eq!(next.beyond(&after).unwrap().to_string(), "0-8-11:12,6-1-1:3,7-1-1");
    assert_eq!(next.beyond(&after).unwrap().count(), 6);
    assert!(after.beyond(&next).unwrap().is_empty());
    assert!(after.holds(&own) && !mariadb("0-7-9,0-8-9,3-7-2").holds(&own));
}

#[test]
fn which_pair_is_newest_is_shown_but_not_hashed() {
    let (one, other) = (mariadb("0-1-5,0-2-9"), mariadb("0-2-9,0-1-5"));
    assert_eq!(one.to_string(), "0-1-5,0-2-9");
    assert_eq!(other.to_string(), "0-2-9,0-1-5");
    assert_eq!(one.canonical(), other.canonical());
    assert!(one.covers(&other) && other.covers(&one));
}

#[test]
fn flavors_do_not_mix() {
    let (my, maria) = (mysql("u:1"), mariadb("0-1-1"));
    let more = added(Flavor::Mariadb, "0-1-2");
    assert_eq!(my.after(&more), None);
    assert_eq!(my.beyond(&maria), None);
    assert!(!my.covers(&maria) && !maria.covers(&my) && !my.holds(&more));
    assert!(my.covers(&Previous::empty(Flavor::Mariadb)));
    assert!(my.holds(&Added::empty(Flavor::Mariadb)));
    assert_eq!(added(Flavor::Mysql, "u:1").union(&more), None);
    assert_eq!(added(Flavor::Mysql, "u:1").difference(&more), None);
    assert_eq!((my.flavor(), maria.flavor()), (Flavor::Mysql, Flavor::Mariadb));
}

#[test]
fn added_parts_join_and_are_taken_away() {
    let (a, b) = (added(Flavor::Mysql, "u:1-5"), added(Flavor::Mysql, "u:4-9,v:1"));
    assert_eq!(a.union(&b).unwrap().to_string(), whole("u:1-9,v:1"));
    assert_eq!(a.difference(&b).unwrap().to_string(), whole("u:1-3"));
    let (a, b) = (added(Flavor::Mariadb, "0-1-1:5"), added(Flavor::Mariadb, "0-1-4:9,2-1-1"));
    assert_eq!(a.union(&b).unwrap().to_string(), "0-1-1:9,2-1-1");
    assert_eq!(a.difference(&b).unwrap().to_string(), "0-1-1:3");
}

#[test]
fn sets_and_flavors_are_json_text() {
    assert_eq!(serde_json::to_string(&Flavor::Mariadb).unwrap(), "\"mariadb\"");
    assert_eq!(serde_json::from_str::<Flavor>("\"mysql\"").unwrap(), Flavor::Mysql);
    assert_eq!(serde_json::to_string(&mariadb("0-1-1,3-1-2")).unwrap(), "\"0-1-1,3-1-2\"");
    assert_eq!(serde_json::to_string(&mysql("u:1-2")).unwrap(), format!("\"{U}:1-2\""));
}
