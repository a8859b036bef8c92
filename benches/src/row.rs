//! Rows and their verdicts. Verdicts are decided only here.

use std::fmt;

use lifecycle::dialect::Language;
use serde::{Deserialize, Serialize};

/// The unit of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    Seconds,
    Bytes,
    PerSecond,
    Tokens,
    Processes,
    Packages,
}

/// A number with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Quantity {
    pub(crate) value: f64,
    pub(crate) unit: Unit,
}

impl Quantity {
    pub(crate) const fn new(value: f64, unit: Unit) -> Self {
        Self { value, unit }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { value, unit } = *self;
        match unit {
            Unit::Seconds if value < 1e-3 => write!(f, "{:.1} µs", value * 1e6),
            Unit::Seconds if value < 1.0 => write!(f, "{:.2} ms", value * 1e3),
            Unit::Seconds => write!(f, "{value:.2} s"),
            Unit::Bytes if value < 1e6 => write!(f, "{:.0} KB", value / 1e3),
            Unit::Bytes => write!(f, "{:.2} MB", value / 1e6),
            Unit::PerSecond => write!(f, "{value:.0} /s"),
            Unit::Tokens => write!(f, "{value:.0} tokens"),
            Unit::Processes => write!(f, "{value:.0} processes"),
            Unit::Packages => write!(f, "{value:.0} packages"),
        }
    }
}

/// The result of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    pub(crate) ours: Quantity,
    /// The floor, measured in the same run.
    pub(crate) floor: Option<Quantity>,
    /// Ours ÷ floor, taken from what was measured side by side; not the quotient of the two medians.
    pub(crate) ratio: Option<f64>,
}

impl Measurement {
    /// A result without a floor.
    pub(crate) fn without_floor(value: f64, unit: Unit) -> Self {
        Self { ours: Quantity::new(value, unit), floor: None, ratio: None }
    }

    /// A result and its floor in the same unit.
    pub(crate) fn against(ours: f64, floor: f64, unit: Unit) -> Self {
        Self {
            ours: Quantity::new(ours, unit),
            floor: Some(Quantity::new(floor, unit)),
            ratio: Some(ours / floor),
        }
    }
}

/// The bound that a row must satisfy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RowBound {
    /// At most this multiple of the floor.
    AtMostTimes(f64),
    /// At least this multiple of the floor.
    AtLeastTimes(f64),
    /// At most this value, without a floor.
    AtMost(Quantity),
    /// No promise; the result is for information.
    None,
}

impl RowBound {
    /// The verdict; `None` if the measurement has no value to judge.
    fn holds(self, measurement: &Measurement) -> Option<RowVerdict> {
        let verdict = |holds| if holds { RowVerdict::Pass } else { RowVerdict::Fail };
        match self {
            Self::AtMostTimes(most) => measurement.ratio.map(|ratio| verdict(ratio <= most)),
            Self::AtLeastTimes(least) => measurement.ratio.map(|ratio| verdict(ratio >= least)),
            Self::AtMost(most) => {
                let fits = most.unit == measurement.ours.unit;
                fits.then(|| verdict(measurement.ours.value <= most.value))
            }
            Self::None => Some(RowVerdict::Info),
        }
    }
}

impl fmt::Display for RowBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMostTimes(most) => write!(f, "≤ {most} ×"),
            Self::AtLeastTimes(least) => write!(f, "≥ {least} ×"),
            Self::AtMost(Quantity { value: 0.0, .. }) => f.write_str("0"),
            Self::AtMost(most) => write!(f, "≤ {most}"),
            Self::None => f.write_str("no promise"),
        }
    }
}

/// The verdict on a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RowVerdict {
    Pass,
    Fail,
    /// No promise was made.
    Info,
    /// A command it needs is not installed.
    Skipped,
    /// It could not be measured.
    Broken,
}

impl RowVerdict {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "FAIL",
            Self::Info => "info",
            Self::Skipped => "skipped",
            Self::Broken => "BROKEN",
        }
    }

    pub(crate) fn is_good(self) -> bool {
        match self {
            Self::Pass | Self::Info | Self::Skipped => true,
            Self::Fail | Self::Broken => false,
        }
    }
}

/// One line of the table.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) guest: Option<Language>,
    pub(crate) what: &'static str,
    pub(crate) measured: Option<Quantity>,
    pub(crate) floor: Option<Quantity>,
    /// What the floor is.
    pub(crate) floor_is: &'static str,
    pub(crate) ratio: Option<f64>,
    pub(crate) bound: RowBound,
    pub(crate) verdict: RowVerdict,
    /// Why there is no number.
    pub(crate) note: Option<String>,
}

/// Why there is no measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Missing {
    Skipped(String),
    Broken(String),
}

/// Compares the result with the bound.
pub(crate) fn judge(
    bound: RowBound,
    found: &Result<Measurement, Missing>,
) -> (RowVerdict, Option<String>) {
    match found {
        Ok(measurement) => match bound.holds(measurement) {
            Some(verdict) => (verdict, None),
            None => (RowVerdict::Broken, Some("the measurement does not fit its bound".to_owned())),
        },
        Err(Missing::Skipped(why)) => (RowVerdict::Skipped, Some(why.clone())),
        Err(Missing::Broken(why)) => (RowVerdict::Broken, Some(why.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_decides() {
        let measurement = |ours, floor| Ok(Measurement::against(ours, floor, Unit::Seconds));
        let milli = RowBound::AtMost(Quantity::new(1e-3, Unit::Seconds));
        let none = RowBound::AtMost(Quantity::new(0.0, Unit::Processes));
        let processes = |n| Ok(Measurement::without_floor(n, Unit::Processes));
        for (bound, found, verdict) in [
            (RowBound::AtMostTimes(8.0), measurement(8.0, 1.0), RowVerdict::Pass),
            (RowBound::AtMostTimes(8.0), measurement(8.1, 1.0), RowVerdict::Fail),
            (RowBound::AtLeastTimes(0.7), measurement(0.7, 1.0), RowVerdict::Pass),
            (RowBound::AtLeastTimes(0.7), measurement(0.69, 1.0), RowVerdict::Fail),
            (milli, measurement(1e-3, 1.0), RowVerdict::Pass),
            (milli, measurement(1.1e-3, 1.0), RowVerdict::Fail),
            (none, processes(0.0), RowVerdict::Pass),
            (none, processes(1.0), RowVerdict::Fail),
            (RowBound::AtMostTimes(8.0), processes(0.0), RowVerdict::Broken), // no floor
            (milli, processes(0.0), RowVerdict::Broken),                      // other units
            (none, measurement(f64::NAN, 1.0), RowVerdict::Broken),
            (RowBound::AtMostTimes(1.0), measurement(f64::NAN, 1.0), RowVerdict::Fail),
            (RowBound::None, measurement(99.0, 1.0), RowVerdict::Info),
            (none, Err(Missing::Skipped("no ruby".into())), RowVerdict::Skipped),
            (none, Err(Missing::Broken("it ended".into())), RowVerdict::Broken),
        ] {
            assert_eq!(judge(bound, &found).0, verdict, "{bound} {found:?}");
        }
    }

    #[test]
    fn quantities_read_well() {
        for (quantity, text) in [
            (Quantity::new(0.000_012_34, Unit::Seconds), "12.3 µs"),
            (Quantity::new(0.001_234, Unit::Seconds), "1.23 ms"),
            (Quantity::new(12.0, Unit::Seconds), "12.00 s"),
            (Quantity::new(620_000.0, Unit::Bytes), "620 KB"),
            (Quantity::new(6_200_000.0, Unit::Bytes), "6.20 MB"),
            (Quantity::new(1234.4, Unit::PerSecond), "1234 /s"),
        ] {
            assert_eq!(quantity.to_string(), text);
        }
    }
}
