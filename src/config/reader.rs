//! Reads a TOML document section by section and gathers every problem with its place.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
#[cfg(test)]
use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One thing that is wrong with a configuration, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong and what to do.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

/// A document being read: its text and the problems found so far.
#[derive(Debug)]
pub(super) struct Document<'i> {
    text: &'i str,
    problems: RefCell<Vec<Problem>>,
    #[cfg(test)]
    asked: RefCell<BTreeSet<(String, &'static str)>>,
}

impl<'i> Document<'i> {
    pub(super) fn new(text: &'i str) -> Self {
        Self {
            text,
            problems: RefCell::new(Vec::new()),
            #[cfg(test)]
            asked: RefCell::new(BTreeSet::new()),
        }
    }

    /// The root of the document; `None` when it is not TOML, and then that is all there is to say.
    pub(super) fn root(&self) -> Option<Section<'_, 'i>> {
        let (root, errors) = DeTable::parse_recoverable(self.text);
        for error in &errors {
            let at = error.span().map_or(0, |span| span.start);
            self.problem(at, error.message().to_owned());
        }
        errors.is_empty().then(|| Section::new(self, String::new(), 0, root.into_inner()))
    }

    fn problem(&self, at: usize, message: String) {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.matches('\n').count() + 1;
        let column = before.get(line_start..).unwrap_or_default().chars().count() + 1;
        self.problems.borrow_mut().push(Problem { line, column, message });
    }

    /// Every key that was asked for, with the title of its section.
    #[cfg(test)]
    pub(super) fn asked(&self) -> BTreeSet<(String, &'static str)> {
        self.asked.borrow().clone()
    }

    /// All problems in the order of their places.
    pub(super) fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        problems.sort();
        problems
    }
}

/// A table whose keys are taken one by one; what is left at the end is unknown.
#[derive(Debug)]
pub(super) struct Section<'d, 'i> {
    document: &'d Document<'i>,
    /// As the user writes it, `[store]`; empty for the root.
    title: String,
    at: usize,
    left: DeTable<'i>,
    /// Every key asked for, with the place of its value where the document has it.
    asked: BTreeMap<&'static str, Option<usize>>,
}

impl<'d, 'i> Section<'d, 'i> {
    fn new(document: &'d Document<'i>, title: String, at: usize, left: DeTable<'i>) -> Self {
        Self { document, title, at, left, asked: BTreeMap::new() }
    }

    fn take(&mut self, key: &'static str) -> Option<Spanned<DeValue<'i>>> {
        let value = self.left.remove(key);
        #[cfg(test)]
        self.document.asked.borrow_mut().insert((self.title.clone(), key));
        self.asked.insert(key, value.as_ref().map(|value| value.span().start));
        value
    }

    /// Whether the document has the key, which was asked for before.
    pub(super) fn has(&self, key: &'static str) -> bool {
        self.asked.get(key).is_some_and(Option::is_some)
    }

    /// Notes a problem with a key, at its value or else at the section.
    pub(super) fn problem(&self, key: &'static str, message: impl fmt::Display) {
        let at = self.asked.get(key).copied().flatten().unwrap_or(self.at);
        self.document.problem(at, format!("{}{message}", self.lead(key)));
    }

    fn lead(&self, key: &str) -> String {
        format!("{key} in {}: ", self.title)
    }

    /// A table of the root; empty when the document has none.
    pub(super) fn section(&mut self, key: &'static str) -> Section<'d, 'i> {
        let title = format!("[{key}]");
        let Some(value) = self.take(key) else {
            return Section::new(self.document, title, 0, DeTable::new());
        };
        let at = value.span().start;
        if let DeValue::Table(table) = value.into_inner() {
            return Section::new(self.document, title, at, table);
        }
        self.document.problem(at, format!("{key} is a section; write {title} above its keys"));
        Section::new(self.document, title, at, DeTable::new())
    }

    /// The tables of an array of tables of the root.
    pub(super) fn sections(&mut self, key: &'static str) -> Vec<Section<'d, 'i>> {
        let title = format!("[[{key}]]");
        let Some(value) = self.take(key) else { return Vec::new() };
        let at = value.span().start;
        let wrong = || {
            self.document
                .problem(at, format!("{key} is a list; write {title} above each one's keys"));
        };
        let DeValue::Array(array) = value.into_inner() else {
            wrong();
            return Vec::new();
        };
        let mut found = Vec::new();
        for item in array {
            let at = item.span().start;
            if let DeValue::Table(table) = item.into_inner() {
                found.push(Section::new(self.document, title.clone(), at, table));
            } else {
                wrong();
            }
        }
        found
    }

    /// Text.
    pub(super) fn text(&mut self, key: &'static str) -> Option<String> {
        let value = self.take(key)?;
        if let DeValue::String(text) = value.into_inner() {
            return Some(text.into_owned());
        }
        self.problem(key, "expected text in quotes");
        None
    }

    /// A list of texts.
    pub(super) fn texts(&mut self, key: &'static str) -> Option<Vec<String>> {
        let value = self.take(key)?;
        let text = |item: Spanned<DeValue<'i>>| {
            if let DeValue::String(text) = item.into_inner() {
                Some(text.into_owned())
            } else {
                None
            }
        };
        if let DeValue::Array(array) = value.into_inner()
            && let Some(texts) = array.into_iter().map(text).collect()
        {
            return Some(texts);
        }
        self.problem(key, "expected a list of texts in quotes, such as [\"one\", \"two\"]");
        None
    }

    /// Text that a function reads.
    pub(super) fn read<T, E: fmt::Display>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.text(key)?;
        match read(&text) {
            Ok(value) => Some(value),
            Err(error) => {
                self.problem(key, error);
                None
            }
        }
    }

    /// Text that is not empty.
    pub(super) fn word(&mut self, key: &'static str) -> Option<String> {
        self.read(key, |text| {
            let fine =
                !text.is_empty() && !text.chars().any(|c| c.is_whitespace() || c.is_control());
            if fine { Ok(text.to_owned()) } else { Err("must not be empty or have spaces in it") }
        })
    }

    /// An absolute path.
    pub(super) fn path(&mut self, key: &'static str) -> Option<PathBuf> {
        self.read(key, |text| {
            let path = PathBuf::from(text);
            if path.is_absolute() && !text.contains('\0') {
                Ok(path)
            } else {
                Err(format!("{text:?} is not an absolute path; begin it with /"))
            }
        })
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, key: &'static str) -> Option<bool> {
        let value = self.take(key)?;
        if let DeValue::Boolean(flag) = value.get_ref() {
            return Some(*flag);
        }
        self.problem(key, "expected true or false, without quotes");
        None
    }

    /// A whole number in a range.
    pub(super) fn number(&mut self, key: &'static str, range: RangeInclusive<u32>) -> Option<u32> {
        let value = self.take(key)?;
        let number = if let DeValue::Integer(number) = value.get_ref() {
            u32::from_str_radix(number.as_str(), number.radix()).ok()
        } else {
            None
        };
        if let Some(number) = number.filter(|number| range.contains(number)) {
            return Some(number);
        }
        let (low, high) = range.into_inner();
        self.problem(key, format!("expected a whole number from {low} to {high}, without quotes"));
        None
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&'static str, T)],
    ) -> Option<T> {
        self.read(key, |text| {
            let found = choices.iter().find(|(word, _)| *word == text);
            found.map(|(_, value)| *value).ok_or_else(|| {
                let words: Vec<_> = choices.iter().map(|(word, _)| format!("{word:?}")).collect();
                format!("{text:?} is none of {}", words.join(", "))
            })
        })
    }

    /// Notes every key that was never asked for.
    pub(super) fn end(self) {
        let Self { document, title, left, asked, .. } = self;
        for (key, _) in left {
            let at = key.span().start;
            let key: Cow<'_, str> = key.into_inner();
            let nearest = asked.keys().min_by_key(|known| strsim::damerau_levenshtein(&key, known));
            let nearest = nearest.copied().unwrap_or_default();
            let message = if title.is_empty() {
                format!("unknown section {key}; the nearest one is {nearest}")
            } else {
                format!("unknown key {key} in {title}; the nearest one is {nearest}")
            };
            document.problem(at, message);
        }
    }
}
