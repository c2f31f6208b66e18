//! The house's rules that a machine can check: floors, module headers, dead files, banned words.
//!
//! It reads the sources as text and knows nothing of the crate, so it holds when nothing compiles.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Above this a file has more than one subject.
const LINES_MAX: usize = 500;

/// What may not stay in a source file. Split, so that this file does not hold them.
const BANNED: [(&str, &str); 8] = [
    (concat!("<<<<", "<<<"), "resolve the conflict"),
    (concat!("dbg", "!("), "remove it"),
    (concat!("todo", "!("), "write it, or leave the variant out"),
    (concat!("unimplemented", "!("), "write it, or leave the variant out"),
    (concat!("FIX", "ME"), "fix it, or open an issue"),
    (concat!("XX", "X:"), "say what it is, or open an issue"),
    (concat!("TO", "DO"), "do it, or open an issue"),
    (
        concat!("#[ig", "nore]"),
        "nothing is skipped in silence: write the reason into the attribute",
    ),
];

struct Module {
    floor: u32,
    later: bool,
}

/// The block of `docs/architecture.md`.
fn floors() -> BTreeMap<String, Module> {
    let text = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let (_, rest) = text.split_once("```floors\n").expect("a block ```floors");
    let (block, _) = rest.split_once("```").expect("the block's end");
    let mut modules = BTreeMap::new();
    for line in block.lines() {
        let mut words = line.split_whitespace();
        assert_eq!(words.next(), Some("floor"), "{line}");
        let floor = words.next().and_then(|floor| floor.parse().ok()).expect(line);
        let name = words.next().expect(line).to_owned();
        assert!(words.next().is_some(), "no description: {line}");
        let module = Module { floor, later: line.ends_with("(not yet)") };
        assert!(modules.insert(name, module).is_none(), "listed twice: {line}");
    }
    modules
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every `.rs` file below a folder of the repository, by its path from there, with its text.
fn sources(folder: &str) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root().join(folder)];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.insert(path.strip_prefix(root().join(folder)).unwrap().to_owned(), text);
            }
        }
    }
    found
}

/// The path of the module that a file of `src` is, without the crate; empty for lib and main.
fn module_path(file: &Path) -> Vec<String> {
    let mut parts: Vec<String> =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

/// The text with comments, strings and character literals blanked out, line by line.
fn code(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(hashes) = raw_string(rest, &out) {
            let quote = format!("\"{}", "#".repeat(hashes));
            let start = 2 + hashes;
            rest[start..].find(&quote).map_or(rest.len(), |end| start + end + quote.len())
        } else if c == '"' {
            string_end(rest)
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\") {
            rest[2..].find('\'').map_or(rest.len(), |end| end + 3)
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        out.extend(rest[..skip].chars().filter(|c| *c == '\n'));
        out.push(' ');
        rest = &rest[skip..];
    }
    out
}

fn raw_string(rest: &str, before: &str) -> Option<usize> {
    let in_word = before.ends_with(|c: char| c.is_alphanumeric() && c != 'b' || c == '_');
    let after = rest.strip_prefix('r').filter(|_| !in_word)?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].starts_with('"').then_some(hashes)
}

fn string_end(rest: &str) -> usize {
    let mut escaped = false;
    for (i, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return i + 1,
            _ => {}
        }
    }
    rest.len()
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// The modules that code reaches by `crate::name` and `crate::{name, name::…}`.
fn imports(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        if !rest.starts_with('{') {
            found.insert(word(rest).to_owned());
            continue;
        }
        let mut depth = 0;
        let mut item_starts = false;
        for (i, c) in rest.char_indices() {
            match c {
                '{' => {
                    depth += 1;
                    item_starts = depth == 1;
                }
                '}' => {
                    depth -= 1;
                    if depth == 0 {
                        break;
                    }
                }
                ',' if depth == 1 => item_starts = true,
                c if item_starts && !c.is_whitespace() => {
                    found.insert(word(&rest[i..]).to_owned());
                    item_starts = false;
                }
                _ => {}
            }
        }
    }
    found
}

/// The longest chain of `super::` in code outside inline test modules.
fn supers(code: &str) -> usize {
    let outside = code.split("mod tests {").next().unwrap_or_default();
    let mut longest = 0;
    for (at, _) in outside.match_indices("super::") {
        let mut chain = 0;
        let mut rest = &outside[at..];
        while let Some(after) = rest.strip_prefix("super::") {
            chain += 1;
            rest = after;
        }
        longest = longest.max(chain);
    }
    longest
}

#[test]
fn imports_never_climb() {
    let floors = floors();
    let mut wrong = Vec::new();
    for (file, text) in sources("src") {
        let path = module_path(&file);
        let Some(own) = path.first() else { continue };
        let code = code(&text);
        let Some(floor) = floors.get(own).map(|module| module.floor) else { continue };
        for import in imports(&code) {
            if import == *own {
                continue;
            }
            match floors.get(&import) {
                None => {
                    wrong.push(format!("{}: {import} is no module of the floors", file.display()))
                }
                Some(module) if module.floor >= floor => wrong.push(format!(
                    "{}: {own} (floor {floor}) uses {import} (floor {})",
                    file.display(),
                    module.floor
                )),
                Some(_) => {}
            }
        }
        if supers(&code) >= path.len() {
            wrong.push(format!("{}: super:: leaves the module; write crate::", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_floors_name_every_module() {
    let floors = floors();
    let files = sources("src");
    let modules: BTreeSet<String> =
        files.keys().filter_map(|file| module_path(file).into_iter().next()).collect();
    let mut wrong = Vec::new();
    for module in &modules {
        match floors.get(module) {
            None => wrong.push(format!("{module} is not in docs/architecture.md")),
            Some(listed) if listed.later => {
                wrong.push(format!("{module} exists, but docs/architecture.md says (not yet)"));
            }
            Some(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_is_part_of_the_crate() {
    let files = sources("src");
    let mut wrong = Vec::new();
    for file in files.keys() {
        let path = module_path(file);
        let Some((name, parents)) = path.split_last() else { continue };
        let folder: PathBuf = parents.iter().collect();
        let declaring = if parents.is_empty() {
            files.get(Path::new("lib.rs"))
        } else {
            files.get(&folder.join("mod.rs")).or_else(|| files.get(&folder.with_extension("rs")))
        };
        let by_name = format!("mod {name};");
        // Tests of a file may lie beside it: `#[path = "name.rs"] mod tests;`.
        let by_path = format!("#[path = \"{name}.rs\"]");
        let beside = |other: &Path| other.parent() == file.parent();
        let declared = declaring.is_some_and(|text| code(text).contains(&by_name))
            || files.iter().any(|(other, text)| beside(other) && text.contains(&by_path));
        if !declared {
            wrong.push(format!("src/{} is declared nowhere", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_says_what_it_is_for_and_stays_small_and_clean() {
    let mut wrong = Vec::new();
    for folder in ["src", "tests"] {
        for (file, text) in sources(folder) {
            let name = format!("{folder}/{}", file.display());
            if !text.starts_with("//! ") {
                wrong.push(format!("{name}: does not open with //!"));
            }
            let lines = text.lines().count();
            if lines > LINES_MAX {
                wrong.push(format!("{name}: {lines} lines, more than {LINES_MAX}"));
            }
            for (banned, instead) in BANNED {
                if text.contains(banned) {
                    wrong.push(format!("{name}: {banned} ({instead})"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_check_itself_sees_imports() {
    let seen = |text: &str| imports(&code(text)).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(seen("use crate::store::Store;\nlet x = crate::sys::f();"), "store sys");
    assert_eq!(seen("use crate::{\n  a::{x, y},\n  b,\n  c::Z as W,\n};\nuse std::d;"), "a b c");
    assert_eq!(
        seen("// crate::a\n/* crate::b */ \"crate::c\" r#\"crate::\"d\"# 'x' '\"' crate::e"),
        "e"
    );
    assert_eq!(seen("my_crate::a; $crate::b; pub(crate) fn f() {}"), "");
    assert_eq!(seen("&'static str, \"\\\" crate::a\", b'\\'', crate::f"), "f");
    assert_eq!(supers("use super::super::x;"), 2);
    assert_eq!(supers("fn f() {}\nmod tests { use super::super::x; }"), 0);
}
