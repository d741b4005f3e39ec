//! Validation of the Host header.

use std::net::Ipv6Addr;

use hyper::Version;
use hyper::header::{HOST, HeaderMap};

/// Checks the Host header of a request. The error is the message to the client, with status 400.
///
/// RFC 9112, section 3.2: a server answers 400 to any HTTP/1.1 request that lacks a Host header field, and to any
/// request that has more than one or one with an invalid value.
pub fn check(version: Version, headers: &HeaderMap) -> Result<(), &'static str> {
    let mut values = headers.get_all(HOST).iter();
    match (values.next(), values.next()) {
        (None, _) if version == Version::HTTP_11 => Err("an HTTP/1.1 request names its host: send a Host header\n"),
        (None, _) => Ok(()),
        (Some(_), Some(_)) => Err("a request has one Host header, not several\n"),
        (Some(value), None) if is_valid(value.as_bytes()) => Ok(()),
        (Some(_), None) => Err("the Host header is not a host, or a host, a colon and a port\n"),
    }
}

/// `uri-host [ ":" port ]` (RFC 9110, section 7.2; RFC 3986, section 3.2.2). A client sends an empty value if its
/// target has no authority.
fn is_valid(value: &[u8]) -> bool {
    let Ok(value) = std::str::from_utf8(value) else { return false };
    // The colons of an IPv6 address are in brackets; without brackets a colon begins the port.
    let (host, port) = match value.rfind(']') {
        Some(end) => value.split_at(end + 1),
        None => value.split_at(value.find(':').unwrap_or(value.len())),
    };
    let port_is_valid = match port.strip_prefix(':') {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_digit()),
        None => port.is_empty(),
    };
    port_is_valid && if host.starts_with('[') { is_ip_literal(host) } else { is_reg_name(host.as_bytes()) }
}

/// An IPv6 address, or one of a future version, in brackets.
fn is_ip_literal(host: &str) -> bool {
    let Some(inside) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else { return false };
    if inside.parse::<Ipv6Addr>().is_ok() {
        return true;
    }
    let Some((version, address)) = inside.strip_prefix(['v', 'V']).and_then(|future| future.split_once('.')) else {
        return false;
    };
    let is_hex = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex && !address.is_empty() && address.bytes().all(|byte| byte == b':' || is_literal(byte))
}

/// Unreserved characters, sub-delimiters and percent-encoded bytes.
fn is_reg_name(mut name: &[u8]) -> bool {
    loop {
        name = match name {
            [] => return true,
            [b'%', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => rest,
            [byte, rest @ ..] if is_literal(*byte) => rest,
            _ => return false,
        };
    }
}

/// `unreserved` or `sub-delims` of RFC 3986.
fn is_literal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(version: Version, hosts: &[&'static str]) -> bool {
        let headers = hosts.iter().map(|host| (HOST, host.parse().unwrap())).collect();
        check(version, &headers).is_ok()
    }

    #[test]
    fn http_1_1_requests_have_one_host() {
        assert!(checked(Version::HTTP_11, &["10.0.0.2"]));
        assert!(!checked(Version::HTTP_11, &[]));
        assert!(checked(Version::HTTP_10, &[]), "HTTP/1.0 has no Host header");
        for version in [Version::HTTP_10, Version::HTTP_11] {
            assert!(!checked(version, &["a", "a"]));
            assert!(!checked(version, &["a", "b"]));
            assert!(!checked(version, &["a b"]));
        }
    }

    #[test]
    fn values_are_those_of_rfc_3986() {
        for valid in [
            "",
            "example.com",
            "example.com:8080",
            "example.com:",
            "10.0.0.2:80",
            "[fd00::2]",
            "[fd00::2]:80",
            "[::ffff:10.0.0.2]",
            "[v1.a:b]",
            "a_b~c",
            "%41b",
        ] {
            assert!(is_valid(valid.as_bytes()), "{valid}");
        }
        for invalid in [
            "a b",
            "a:b",
            "a:80:80",
            "a/b",
            "user@host",
            "http://a",
            "fd00::2",
            "[fd00::2",
            "[fd00::2]80",
            "[a]",
            "[]",
            "a]",
            "[fe80::1%eth0]",
            "a%4",
            "a%zz",
            "a?b",
            "a#b",
            "a\\b",
            "a, b",
            "\u{e4}",
        ] {
            assert!(!is_valid(invalid.as_bytes()), "{invalid}");
        }
    }
}
