//! Parses ages, such as `30d`.

use std::time::Duration;

/// A number and a unit: `90s`, `12h`, `30d`.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    let problem =
        || format!("{text:?} is not an age; write a number and s, m, h or d, such as 30d");
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(problem)?;
    let seconds: u64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        _ => return Err(problem()),
    };
    let number: u64 = number.parse().map_err(|_| problem())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(problem)
}

/// Like [`age`], but a number without a unit means days.
pub(super) fn age_or_days(text: &str) -> Result<Duration, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { age(&format!("{text}d")) } else { age(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_a_unit() {
        assert_eq!(age("30d"), Ok(Duration::from_hours(720)));
        assert_eq!(age("0s"), Ok(Duration::ZERO));
        for wrong in ["", "d", "30", "-1d", "3 d", "30é", "99999999999999999999d"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_number_without_a_unit_means_days() {
        assert_eq!(age_or_days("14"), age("14d"));
        assert_eq!(age_or_days("12h"), age("12h"));
        for wrong in ["", "d", "-1", "1.5"] {
            assert!(age_or_days(wrong).is_err(), "{wrong}");
        }
    }
}
