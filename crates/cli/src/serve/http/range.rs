//! Range requests (RFC 9110, section 14) and conditional requests (section 13).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::header::{HeaderMap, HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE};

/// The kind of answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Everything: 200.
    Whole,
    /// The bytes from the first to before the second: 206.
    Part(u64, u64),
    /// A part that does not exist: 416.
    Unsatisfiable,
    /// The client's copy is current: 304.
    Nothing,
}

/// The validators of a file's version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its entity tag.
    pub etag: String,
    /// When it was changed last, in whole seconds.
    pub modified: SystemTime,
}

impl Version {
    /// From a file's length and time of change.
    pub fn new(length: u64, modified: SystemTime) -> Version {
        let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        let modified = UNIX_EPOCH + Duration::from_secs(since.as_secs());
        Version { etag: format!("\"{:x}-{length:x}\"", since.as_nanos()), modified }
    }
}

/// The answer to a GET or HEAD with `headers` for a file of `length` bytes.
pub fn wanted(headers: &HeaderMap, length: u64, version: &Version) -> Wanted {
    if is_current(headers, version) {
        return Wanted::Nothing;
    }
    let condition = text(headers, &IF_RANGE);
    let holds = condition.is_none_or(|condition| {
        condition == version.etag || httpdate::parse_http_date(condition).is_ok_and(|date| date == version.modified)
    });
    match text(headers, &RANGE) {
        Some(range) if holds => part(range, length),
        _ => Wanted::Whole,
    }
}

/// RFC 9110, 13.2.2: the date counts only if no tag is given.
fn is_current(headers: &HeaderMap, version: &Version) -> bool {
    if let Some(tags) = text(headers, &IF_NONE_MATCH) {
        let same = |tag: &str| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == version.etag;
        return tags.split(',').any(|tag| same(tag.trim()));
    }
    let since = text(headers, &IF_MODIFIED_SINCE).and_then(|date| httpdate::parse_http_date(date).ok());
    since.is_some_and(|since| version.modified <= since)
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// One range of bytes. Multiple and invalid ranges are ignored, as section 14.2 allows.
fn part(range: &str, length: u64) -> Wanted {
    let Some((first, last)) = range.strip_prefix("bytes=").and_then(|range| range.trim().split_once('-')) else {
        return Wanted::Whole;
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A number too large for us is larger than any file.
    let number = |text: &str| text.parse().unwrap_or(u64::MAX);
    match (first, last) {
        ("", suffix) if digits(suffix) => match number(suffix).min(length) {
            0 => Wanted::Unsatisfiable,
            suffix => Wanted::Part(length - suffix, length),
        },
        (first, "") if digits(first) => between(number(first), u64::MAX, length),
        (first, last) if digits(first) && digits(last) => between(number(first), number(last), length),
        _ => Wanted::Whole,
    }
}

fn between(first: u64, last: u64, length: u64) -> Wanted {
    if first > last {
        Wanted::Whole
    } else if first >= length {
        Wanted::Unsatisfiable
    } else {
        Wanted::Part(first, last.saturating_add(1).min(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_rfc_9110_says() {
        for (range, expected) in [
            ("bytes=0-499", Wanted::Part(0, 500)),
            ("bytes=500-", Wanted::Part(500, 1000)),
            ("bytes=-500", Wanted::Part(500, 1000)),
            ("bytes=-5000", Wanted::Part(0, 1000)),
            ("bytes=999-99999999999999999999999", Wanted::Part(999, 1000)),
            ("bytes=1000-", Wanted::Unsatisfiable),
            ("bytes=-0", Wanted::Unsatisfiable),
            ("bytes=5-4", Wanted::Whole),
            ("bytes=0-1,5-6", Wanted::Whole),
            ("bytes=-", Wanted::Whole),
            ("bytes=+1-2", Wanted::Whole),
            ("lines=1-2", Wanted::Whole),
        ] {
            assert_eq!(part(range, 1000), expected, "{range}");
        }
        assert_eq!(part("bytes=0-", 0), Wanted::Unsatisfiable);
    }

    #[test]
    fn conditions_come_before_ranges() {
        let version = Version::new(1000, UNIX_EPOCH + Duration::from_millis(1_500_000_000_250));
        let with = |pairs: &[(HeaderName, &str)]| {
            let headers = pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
            wanted(&headers, 1000, &version)
        };
        let date = "Fri, 14 Jul 2017 02:40:00 GMT";
        let earlier = "Fri, 14 Jul 2017 02:39:59 GMT";
        assert_eq!(with(&[]), Wanted::Whole);
        assert_eq!(with(&[(IF_MODIFIED_SINCE, date)]), Wanted::Nothing);
        assert_eq!(with(&[(IF_MODIFIED_SINCE, earlier)]), Wanted::Whole);
        assert_eq!(with(&[(IF_NONE_MATCH, &version.etag), (IF_MODIFIED_SINCE, earlier)]), Wanted::Nothing);
        assert_eq!(with(&[(IF_NONE_MATCH, "\"x\", \"y\""), (IF_MODIFIED_SINCE, date)]), Wanted::Whole);
        assert_eq!(with(&[(IF_RANGE, date), (RANGE, "bytes=1-2")]), Wanted::Part(1, 3));
        assert_eq!(with(&[(IF_RANGE, "\"old\""), (RANGE, "bytes=1-2")]), Wanted::Whole);
    }
}
