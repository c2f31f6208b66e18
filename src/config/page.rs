//! The `[[page]]` sections: who is told, and how.

use std::path::PathBuf;
use std::time::Duration;

use super::reader::Section;
use super::sections::{duration_or, http_url};

/// Where a secret is read from when it is needed; a configuration never holds one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Secret {
    /// The first line of a file.
    File(PathBuf),
    /// An environment variable.
    Env(String),
}

/// One way to reach a human.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Page {
    /// PagerDuty's Events API v2.
    PagerDuty {
        /// The integration's routing key.
        routing_key: Secret,
        /// Another address than the public service's, such as that of its EU region.
        url: Option<String>,
    },
    /// The v2 API of one or more Alertmanagers.
    Alertmanager {
        /// The base address of every instance.
        urls: Vec<String>,
    },
    /// A Slack incoming webhook.
    Slack {
        /// Its address, which is a secret.
        url: Secret,
    },
    /// A JSON document by POST.
    Webhook {
        /// Where to.
        url: String,
        /// What requests are signed with.
        secret: Option<Secret>,
    },
    /// A JSON document on a program's standard input.
    Command {
        /// Program and arguments; no shell is involved.
        command: Vec<String>,
        /// How long it may take.
        timeout: Duration,
    },
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    PagerDuty,
    Alertmanager,
    Slack,
    Webhook,
    Command,
}

const KINDS: [(&str, Kind); 5] = [
    ("pagerduty", Kind::PagerDuty),
    ("alertmanager", Kind::Alertmanager),
    ("slack", Kind::Slack),
    ("webhook", Kind::Webhook),
    ("command", Kind::Command),
];

/// Reads one `[[page]]`; `None` when a problem was noted.
pub(super) fn page(mut section: Section<'_, '_>) -> Option<Page> {
    let Some(kind) = section.choice("kind", &KINDS) else {
        if !section.has("kind") {
            section.problem(
                "kind",
                "missing; write one of pagerduty, alertmanager, slack, webhook, command",
            );
        }
        return None;
    };
    let page = match kind {
        Kind::PagerDuty => {
            let routing_key = needed(&mut section, "routing_key_file", "routing_key_env");
            let url = section.read("url", http_url);
            routing_key.map(|routing_key| Page::PagerDuty { routing_key, url })
        }
        Kind::Alertmanager => alertmanager(&mut section),
        Kind::Slack => needed(&mut section, "url_file", "url_env").map(|url| Page::Slack { url }),
        Kind::Webhook => {
            let url = section.read("url", http_url);
            if !section.has("url") {
                section.problem("url", "missing; write the address that takes the document");
            }
            let secret = secret(&mut section, "secret_file", "secret_env");
            url.map(|url| Page::Webhook { url, secret })
        }
        Kind::Command => {
            let command = section.texts("command");
            let timeout = duration_or(&mut section, "timeout", Duration::from_secs(30));
            let named =
                command.filter(|words| words.first().is_some_and(|word| word.starts_with('/')));
            if named.is_none() {
                section.problem(
                    "command",
                    "write a list that begins with the program's absolute path",
                );
            }
            named.map(|command| Page::Command { command, timeout })
        }
    };
    section.end();
    page
}

fn alertmanager(section: &mut Section<'_, '_>) -> Option<Page> {
    let urls = section.texts("urls").unwrap_or_default();
    if urls.is_empty() {
        section.problem(
            "urls",
            "write the address of every Alertmanager, such as [\"http://am1:9093\"]",
        );
        return None;
    }
    let mut good = Vec::new();
    for url in urls {
        match http_url(&url) {
            Ok(url) => good.push(url),
            Err(error) => section.problem("urls", error),
        }
    }
    Some(Page::Alertmanager { urls: good })
}

fn needed(section: &mut Section<'_, '_>, file: &'static str, env: &'static str) -> Option<Secret> {
    let found = secret(section, file, env);
    if !section.has(file) && !section.has(env) {
        section.problem(file, format!("missing; write {file} or {env}"));
    }
    found
}

fn secret(section: &mut Section<'_, '_>, file: &'static str, env: &'static str) -> Option<Secret> {
    let from_file = section.path(file);
    let from_env = section.word(env);
    match (from_file, from_env) {
        (Some(_), Some(_)) => {
            section.problem(env, format!("{file} is given too; keep one of the two"));
            None
        }
        (Some(path), None) => Some(Secret::File(path)),
        (None, Some(name)) => Some(Secret::Env(name)),
        (None, None) => None,
    }
}
