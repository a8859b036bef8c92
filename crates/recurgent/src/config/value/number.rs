//! Counts, times and ports, each within its bounds.

use std::time::Duration;

use super::{Expected, MANY, ValueType};

/// Most ports of one setting.
const MAX_PORTS: usize = 16;

/// Port numbers.
pub(in crate::config) fn ports() -> ValueType<[String], Vec<u16>> {
    fn within(ports: Option<Vec<u16>>) -> Result<Vec<u16>, Expected> {
        let fits = |ports: &Vec<u16>| ports.len() <= MAX_PORTS && !ports.contains(&0);
        ports.filter(fits).ok_or_else(|| {
            format!("at most {MAX_PORTS} ports, from 1 to 65535, separated by commas")
        })
    }
    ValueType {
        read: |items| within(items.iter().map(|item| item.parse().ok()).collect()),
        check: |ports| within(Some(ports)),
    }
}

/// A whole number within bounds.
pub(in crate::config) fn count<T, const LEAST: u64, const MOST: u64>() -> ValueType<str, T>
where
    T: TryFrom<u64> + TryInto<u64> + Copy,
{
    fn within<T: TryFrom<u64>>(
        count: Option<u64>,
        (least, most): (u64, u64),
    ) -> Result<T, Expected> {
        let count = count.filter(|count| (least..=most).contains(count));
        let count = count.and_then(|count| T::try_from(count).ok());
        count.ok_or_else(|| format!("a whole number from {least} to {most}"))
    }
    ValueType {
        read: |text| within(text.parse().ok(), (LEAST, MOST)),
        check: |count| within(count.try_into().ok(), (LEAST, MOST)),
    }
}

/// A whole number within bounds, or none when the text is empty.
pub(in crate::config) fn optional_count<T, const LEAST: u64, const MOST: u64>()
-> ValueType<str, Option<T>>
where
    T: TryFrom<u64> + TryInto<u64> + Copy,
{
    ValueType {
        read: |text| {
            if text.is_empty() {
                return Ok(None);
            }
            let count = (count::<T, LEAST, MOST>().read)(text);
            count.map(Some).map_err(|expected| format!("{expected}, or empty"))
        },
        check: |value| value.map(count::<T, LEAST, MOST>().check).transpose(),
    }
}

/// A number from 0 to `MOST`, or none when the text is empty.
pub(in crate::config) fn optional_number<const MOST: u64>() -> ValueType<str, Option<f64>> {
    fn within(number: Option<f64>, most: u64) -> Result<Option<f64>, Expected> {
        let number = number.filter(|number| (0.0..=as_float(most)).contains(number));
        number.map(Some).ok_or_else(|| format!("a number from 0 to {most}, or empty"))
    }
    ValueType {
        read: |text| if text.is_empty() { Ok(None) } else { within(text.parse().ok(), MOST) },
        check: |number| if number.is_none() { Ok(None) } else { within(number, MOST) },
    }
}

/// A time above zero, in seconds.
pub(in crate::config) fn seconds() -> ValueType<str, Duration> {
    fn within(time: Option<Duration>) -> Result<Duration, Expected> {
        let fits = |time: &Duration| *time > Duration::ZERO && *time <= Duration::from_secs(MANY);
        time.filter(fits).ok_or_else(|| format!("a number of seconds above 0, at most {MANY}"))
    }
    ValueType { read: |text| within(time(text)), check: |time| within(Some(time)) }
}

/// A time in seconds, or none when the text is empty.
pub(in crate::config) fn optional_seconds() -> ValueType<str, Option<Duration>> {
    fn within(time: Option<Duration>) -> Result<Option<Duration>, Expected> {
        let time = time.filter(|time| *time <= Duration::from_secs(MANY));
        time.map(Some).ok_or_else(|| format!("a number from 0 to {MANY}, or empty"))
    }
    ValueType {
        read: |text| if text.is_empty() { Ok(None) } else { within(time(text)) },
        check: |time| if time.is_none() { Ok(None) } else { within(time) },
    }
}

fn time(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

#[expect(clippy::cast_precision_loss, reason = "a bound for people")]
fn as_float(count: u64) -> f64 {
    count as f64
}
