//! How cost grows: one row per quantity; `curve/` measures.

mod calls;
mod stores;

use lifecycle::dialect::Language;
use serde::{Deserialize, Serialize};

use crate::fixture::MeasurementOptions;
use crate::row::{Measurement, Missing, Quantity, RowBound, RowVerdict, judge};
use crate::timing::float;

/// A quantity that grows, and the cost it changes.
pub(crate) struct Curve {
    pub(crate) name: &'static str,
    /// The cost of a point.
    pub(crate) what: &'static str,
    /// The quantity.
    pub(crate) axis: &'static str,
    pub(crate) scale: Scale,
    /// The highest cost of a point as a multiple of the first; `None` means no promise.
    pub(crate) flat: Option<f64>,
    pub(crate) measure: fn(MeasurementOptions) -> Vec<Point>,
}

/// The scale of the axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    Linear,
    Logarithmic,
}

/// The cost at one value of the quantity.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) cost: Quantity,
    /// The cost as a multiple of the lowest.
    pub(crate) ratio: f64,
}

impl Point {
    fn at(size: usize, measurement: Measurement) -> Self {
        Self {
            x: float(size),
            cost: measurement.ours,
            ratio: measurement.ratio.unwrap_or(f64::NAN),
        }
    }
}

#[rustfmt::skip]
pub(crate) const CURVES: &[Curve] = &[
    curve("tools",       "stored call, end to end",              "tools in the store",               (Scale::Logarithmic, Some(1.2)),  stores::tools),
    curve("artifacts",   "stored call, end to end",              "artifacts in the store",           (Scale::Logarithmic, Some(1.2)),  stores::artifacts),
    curve("history",     "stored call, end to end",              "history records of the agent",     (Scale::Logarithmic, Some(1.2)),  stores::history),
    curve("context",     "stored call after one small key changed", "bytes of the agent's context",  (Scale::Logarithmic, Some(2.0)),  calls::context),
    curve("code",        "stored call, end to end",              "bytes of the stored program",      (Scale::Logarithmic, None),       calls::code),
    curve("concurrency", "time of the machine per stored call",  "agents calling at once",           (Scale::Logarithmic, None),       calls::concurrency),
    curve("depth",       "stored call that delegates",           "levels of delegation below it",    (Scale::Linear, None),            calls::depth),
    curve("log",         "stored call, end to end",              "bytes of the log",                 (Scale::Logarithmic, None),       stores::log),
];

const fn curve(
    name: &'static str,
    what: &'static str,
    axis: &'static str,
    (scale, flat): (Scale, Option<f64>),
    measure: fn(MeasurementOptions) -> Vec<Point>,
) -> Curve {
    Curve { name, what, axis, scale, flat, measure }
}

/// The points of one guest with a verdict.
#[derive(Debug, Serialize)]
pub(crate) struct Series {
    pub(crate) curve: &'static str,
    pub(crate) guest: Language,
    pub(crate) what: &'static str,
    pub(crate) axis: &'static str,
    pub(crate) points: Vec<Point>,
    pub(crate) flat: Option<f64>,
    pub(crate) verdict: RowVerdict,
    pub(crate) note: Option<String>,
}

impl Curve {
    /// The verdict on the point with the highest cost.
    pub(crate) fn series(&self, guest: Language, found: Result<Vec<Point>, Missing>) -> Series {
        let dearest = |points: &Vec<Point>| {
            let worst = points.iter().max_by(|a, b| f64::total_cmp(&a.ratio, &b.ratio));
            worst.map(|point| Measurement {
                ours: point.cost,
                floor: None,
                ratio: Some(point.ratio),
            })
        };
        let none = || Missing::Broken("there are no points".to_owned());
        let measurement = found.as_ref().map_err(Clone::clone);
        let measurement = measurement.and_then(|points| dearest(points).ok_or_else(none));
        let (verdict, note) =
            judge(self.flat.map_or(RowBound::None, RowBound::AtMostTimes), &measurement);
        Series {
            curve: self.name,
            guest,
            what: self.what,
            axis: self.axis,
            points: found.unwrap_or_default(),
            flat: self.flat,
            verdict,
            note,
        }
    }
}
