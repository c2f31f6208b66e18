//! Durations, sizes and shares as text.

use std::time::Duration;

/// Reads `500ms`, `90s`, `15m`, `6h`, `30d`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let say = || {
        format!(
            "{text:?} is not a duration; write a whole number and ms, s, m, h or d, such as \"90s\" or \"15m\""
        )
    };
    let (number, unit) = split(text).ok_or_else(say)?;
    let factor_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(say()),
    };
    number.checked_mul(factor_ms).map(Duration::from_millis).ok_or_else(say)
}

/// Prints a duration in the largest unit that loses nothing.
pub(super) fn print_duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let whole = units.into_iter().find(|(factor, _)| ms > 0 && ms.is_multiple_of(*factor));
    whole.map_or_else(|| format!("{ms}ms"), |(factor, unit)| format!("{}{unit}", ms / factor))
}

/// Reads `0`, `512`, `256KiB`, `8MiB`, `2GiB`, `1TiB`.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let say = || {
        format!(
            "{text:?} is not a size; write a whole number and KiB, MiB, GiB or TiB, such as \"8MiB\""
        )
    };
    let (number, unit) = split(text).ok_or_else(say)?;
    let shift = match unit {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return Err(say()),
    };
    number.checked_mul(1 << shift).ok_or_else(say)
}

/// Prints a size in the largest unit that loses nothing.
pub(super) fn print_size(size: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let whole = units.into_iter().find(|(shift, _)| size > 0 && size.trailing_zeros() >= *shift);
    whole.map_or_else(|| size.to_string(), |(shift, unit)| format!("{}{unit}", size >> shift))
}

/// Reads `10%`: 0 to 99.
pub(super) fn percent(text: &str) -> Option<u8> {
    let (number, unit) = split(text)?;
    (unit == "%" && number < 100).then(|| u8::try_from(number).ok()).flatten()
}

/// The digits in front, and what stands behind them.
fn split(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at_checked(end)?;
    Some((digits.parse().ok()?, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_and_print() {
        for (text, ms) in
            [("500ms", 500), ("90s", 90_000), ("15m", 900_000), ("30d", 2_592_000_000)]
        {
            let read = duration(text).unwrap();
            assert_eq!((read.as_millis(), print_duration(read)), (ms, text.to_owned()));
        }
        assert_eq!(print_duration(Duration::ZERO), "0ms");
        for bad in ["", "5", "s", "5 s", "-5s", "1.5h", "5w", "18446744073709551615d", "5S", "٣s"]
        {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn sizes_read_and_print() {
        for (text, bytes) in [("0", 0), ("512", 512), ("8MiB", 8 << 20), ("2GiB", 2 << 30)] {
            assert_eq!((size(text), print_size(bytes)), (Ok(bytes), text.to_owned()));
        }
        assert_eq!(size("7B"), Ok(7));
        for bad in ["", "8MB", "8 MiB", "8mib", "MiB", "1.5GiB", "16777216TiB", "-1"] {
            assert!(size(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn shares_are_below_a_hundred() {
        assert_eq!((percent("10%"), percent("0%"), percent("99%")), (Some(10), Some(0), Some(99)));
        assert_eq!((percent("100%"), percent("10"), percent("%")), (None, None, None));
    }
}
