//! Numbers of any size, compared exactly: JSON bounds their digits nowhere.

use std::cmp::Ordering;

use serde_json::Number;

pub(super) fn compare(left: &Number, right: &Number) -> Ordering {
    Decimal::of(left).cmp(&Decimal::of(right))
}

/// A JSON number of any size, exactly: ± 0.`digits` × 10^`point`, without outer zeros.
#[derive(PartialEq, Eq)]
pub(super) struct Decimal {
    negative: bool,
    digits: String,
    point: i64,
}

impl Decimal {
    pub(super) fn of(number: &Number) -> Self {
        let text = number.to_string();
        let (negative, text) = text.strip_prefix('-').map_or((false, text.as_str()), |t| (true, t));
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let farthest = if exponent.starts_with('-') { i64::MIN / 2 } else { i64::MAX / 2 };
        let exponent = exponent.parse().unwrap_or(farthest).clamp(i64::MIN / 2, i64::MAX / 2);
        let all = format!("{whole}{fraction}");
        let digits = all.trim_start_matches('0');
        let length = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX / 4);
        let point = length(whole) - (length(&all) - length(digits)) + exponent;
        let digits = digits.trim_end_matches('0').to_owned();
        if digits.is_empty() {
            return Self { negative: false, digits, point: 0 };
        }
        Self { negative, digits, point }
    }

    pub(super) fn is_integer(&self) -> bool {
        i64::try_from(self.digits.len()).is_ok_and(|length| length <= self.point.max(0))
    }

    fn sign(&self) -> i8 {
        match (self.digits.is_empty(), self.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let size = self.point.cmp(&other.point).then_with(|| self.digits.cmp(&other.digits));
        let size = if self.negative { size.reverse() } else { size };
        self.sign().cmp(&other.sign()).then(size)
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
