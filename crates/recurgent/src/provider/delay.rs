//! The wait that a service asks for before the next request.

use std::time::{Duration, SystemTime};

use serde_json::Value;
use ureq::http::HeaderMap;

/// The headers with the rest of a rate limit and the time of its reset: Anthropic sends a date, OpenAI a duration.
const RATE_LIMITS: [(&str, &str); 6] = [
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
];

/// `retry-after-ms`, `retry-after` in seconds or as a date, Google's `retryDelay`, or when the rate limit that
/// is used up is whole again: the first that is there.
pub(super) fn asked_for(
    headers: &HeaderMap,
    body: Option<&Value>,
    now: SystemTime,
) -> Option<Duration> {
    let header = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let millis = header("retry-after-ms").and_then(|text| text.parse::<f64>().ok());
    millis
        .and_then(|millis| Duration::try_from_secs_f64(millis / 1000.0).ok())
        .or_else(|| {
            header("retry-after").and_then(|text| seconds(text).or_else(|| until(text, now)))
        })
        .or_else(|| {
            let details = body?.pointer("/error/details")?.as_array()?;
            let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
            seconds(delay.strip_suffix('s')?)
        })
        .or_else(|| {
            let used_up = RATE_LIMITS.iter().filter(|(left, _)| header(left) == Some("0"));
            let whole = used_up.filter_map(|(_, reset)| header(reset));
            whole.filter_map(|text| until(text, now).or_else(|| spell(text))).max()
        })
}

fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

/// The time to a date, as HTTP or RFC 3339 writes it; none to one that is past.
fn until(text: &str, now: SystemTime) -> Option<Duration> {
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text);
    let date = date.ok().or_else(|| text.parse::<jiff::Timestamp>().ok())?;
    let now = jiff::Timestamp::try_from(now).ok()?;
    Some(Duration::try_from(date.duration_since(now)).unwrap_or(Duration::ZERO))
}

/// `1h6m0.5s`, `20ms`.
fn spell(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let (number, tail) = rest.split_at(end);
        let units = [("ms", 0.001), ("h", 3600.0), ("m", 60.0), ("s", 1.0)];
        let (unit, size) = units.into_iter().find(|(unit, _)| tail.starts_with(unit))?;
        sum += number.parse::<f64>().ok()? * size;
        rest = tail.strip_prefix(unit)?;
    }
    Duration::try_from_secs_f64(sum).ok().filter(|_| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_delay_is_read_in_every_form() {
        let now: SystemTime = "2026-11-15T18:00:00Z".parse::<jiff::Timestamp>().unwrap().into();
        let requests = ("anthropic-ratelimit-requests-remaining", "0");
        let tokens = ("x-ratelimit-remaining-tokens", "0");
        for (given, millis) in [
            (vec![("retry-after", "7")], Some(7_000)),
            (vec![("retry-after", " 0.5 ")], Some(500)),
            (vec![("retry-after", "Sun, 15 Nov 2026 18:00:09 GMT")], Some(9_000)),
            (vec![("retry-after", "Sun, 15 Nov 2026 17:00:00 GMT")], Some(0)),
            (vec![("retry-after-ms", "250"), ("retry-after", "1")], Some(250)),
            (vec![("retry-after-ms", "-1"), ("retry-after", "1")], Some(1_000)),
            (vec![("retry-after", "-1")], None),
            (vec![("retry-after", "soon")], None),
            (vec![("retry-after", "NaN")], None),
            (vec![("retry-after", "1e300")], None),
            (
                vec![requests, ("anthropic-ratelimit-requests-reset", "2026-11-15T18:00:04Z")],
                Some(4_000),
            ),
            (vec![tokens, ("x-ratelimit-reset-tokens", "1m0.5s")], Some(60_500)),
            (vec![tokens, ("x-ratelimit-reset-tokens", "20ms")], Some(20)),
            (vec![tokens, ("x-ratelimit-reset-tokens", "20 parsecs")], None),
            (vec![tokens, ("x-ratelimit-reset-tokens", "")], None),
            (vec![tokens, ("x-ratelimit-reset-tokens", "6h"), ("retry-after", "1")], Some(1_000)),
            // A limit of which something is left is not what we were stopped by.
            (vec![("x-ratelimit-remaining-tokens", "9"), ("x-ratelimit-reset-tokens", "6h")], None),
            (
                vec![
                    tokens,
                    ("x-ratelimit-reset-tokens", "1s"),
                    requests,
                    ("anthropic-ratelimit-requests-reset", "2026-11-15T18:00:04Z"),
                ],
                Some(4_000),
            ),
        ] {
            let headers: HeaderMap = given
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                .collect();
            let wanted = millis.map(Duration::from_millis);
            assert_eq!(asked_for(&headers, None, now), wanted, "{given:?}");
        }
        let google = json!({"error": {"details": [{"@type": "x"}, {"retryDelay": "38s"}]}});
        assert_eq!(asked_for(&HeaderMap::new(), Some(&google), now), Some(Duration::from_secs(38)));
    }
}
