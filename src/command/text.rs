//! Pieces of text for humans.

/// Text from servers and files, made safe for a terminal: control characters are shown, not sent.
#[must_use]
pub fn escape(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let control = c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            let (plain, shown) = if control { (None, Some(c.escape_default())) } else { (Some(c), None) };
            plain.into_iter().chain(shown.into_iter().flatten())
        })
        .collect()
}

/// Bytes for humans, in binary units.
#[must_use]
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut unit = "B";
    let (mut whole, mut tenths) = (bytes, 0);
    for next in UNITS {
        if whole < 1024 {
            break;
        }
        tenths = (whole % 1024) * 10 / 1024;
        whole /= 1024;
        unit = next;
    }
    if unit == "B" { format!("{whole} B") } else { format!("{whole}.{tenths} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_not_sent() {
        assert_eq!(escape("a\u{1b}[31mb\n"), "a\\u{1b}[31mb\\n");
        assert_eq!(escape("größe ✓"), "größe ✓");
    }

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(size(999), "999 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(5 << 40), "5.0 TiB");
    }
}
