//! What a row of the tables says.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cause::Cause;

/// Whether another try may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// It may.
    Transient,
    /// It will not, until somebody mends something.
    Permanent,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Transient => "transient",
            Self::Permanent => "permanent",
        })
    }
}

/// What else would fail the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Nothing: it is this segment.
    Segment,
    /// Everything of this source.
    Source,
    /// Everything on this host.
    Host,
    /// Everything that goes to this store.
    Destination,
    /// The facts do not tell: the canary has to.
    NeedsCanary,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Segment => "segment",
            Self::Source => "source",
            Self::Host => "host",
            Self::Destination => "destination",
            Self::NeedsCanary => "needs-canary",
        })
    }
}

/// Who found the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The store, by what it answered. The same one on two segments in a row is the destination's.
    Store,
    /// The way to the store: nothing was answered, or nothing could be asked.
    Road,
    /// We, from what the archive holds.
    Archive,
    /// This host.
    Host,
}

/// When a fault that looks permanent is tried again for a short while all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Grace {
    /// Never.
    None,
    /// For five minutes, where the store worked within the last hour or the credentials were changed
    /// a moment ago: keys, policies and certificates that are replaced take that long to be known
    /// everywhere.
    Auth,
    /// For ten minutes, where the store worked before: a provider of credentials that is down and one
    /// that is not configured look the same.
    Credentials,
}

/// What a fault means by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Classified {
    /// Whether another try may help.
    pub class: Class,
    /// What else would fail the same way.
    pub scope: Scope,
    /// Why, by name.
    pub cause: Cause,
    /// Whether the store asks everybody to slow down. Never counted as an attempt.
    pub throttle: bool,
    /// How long the store asks to wait.
    pub retry_after: Option<Duration>,
    /// A transient one is permanent after this many tries of one segment.
    pub tries: Option<u32>,
    /// Whether a permanent one is tried again for a while.
    pub grace: Grace,
    /// Who found it.
    pub origin: Origin,
}

const fn rule(class: Class, scope: Scope, cause: Cause) -> Classified {
    Classified {
        class,
        scope,
        cause,
        throttle: false,
        retry_after: None,
        tries: None,
        grace: Grace::None,
        origin: Origin::Store,
    }
}

pub(super) const fn transient(scope: Scope, cause: Cause) -> Classified {
    rule(Class::Transient, scope, cause)
}

pub(super) const fn permanent(scope: Scope, cause: Cause) -> Classified {
    rule(Class::Permanent, scope, cause)
}

/// What is in no table.
pub(super) const UNKNOWN: Classified = permanent(Scope::NeedsCanary, Cause::Unknown);

impl Classified {
    pub(super) const fn throttling(mut self) -> Self {
        self.throttle = true;
        self
    }

    pub(super) const fn tries(mut self, most: u32) -> Self {
        self.tries = Some(most);
        self
    }

    pub(super) const fn grace(mut self, grace: Grace) -> Self {
        self.grace = grace;
        self
    }

    pub(super) const fn from(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    /// The class as the document writes it: with its limits.
    #[cfg(test)]
    pub(super) fn class_text(&self) -> String {
        let mut text = self.class.to_string();
        if self.throttle {
            text = "throttling".to_owned();
        }
        if let Some(tries) = self.tries {
            text.push_str(&format!(", {tries} tries"));
        }
        match self.grace {
            Grace::None => {}
            Grace::Auth => text.push_str(", grace 5 min"),
            Grace::Credentials => text.push_str(", grace 10 min"),
        }
        text
    }
}
