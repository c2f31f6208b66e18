//! The only effects on this host's state: durable writes, the lock, hard links, signals.
