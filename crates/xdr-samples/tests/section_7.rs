//! RFC 4506 section 7: the file `sillyprog` of the user `john`, byte by byte.

use xdr_samples::file::{File, Filetype};

const BYTES: &[u8] = b"\x00\x00\x00\x09sillyprog\0\0\0\
    \x00\x00\x00\x02\
    \x00\x00\x00\x04lisp\
    \x00\x00\x00\x04john\
    \x00\x00\x00\x06(quit)\0\0";

fn sillyprog() -> File {
    let text = |text: &str| text.to_owned().try_into();
    File {
        filename: text("sillyprog").unwrap(),
        r#type: Filetype::Exec("lisp".to_owned().try_into().unwrap()),
        owner: "john".to_owned().try_into().unwrap(),
        data: b"(quit)".to_vec().try_into().unwrap(),
    }
}

#[test]
fn the_file_of_the_specification_has_its_bytes() {
    assert_eq!(xdr::to_vec(&sillyprog()), BYTES);
    assert_eq!(xdr::from_bytes(BYTES), Ok(sillyprog()));
}

#[test]
fn an_end_before_the_last_byte_is_an_error_and_so_is_a_byte_too_many() {
    for length in 0..BYTES.len() {
        assert_eq!(xdr::from_bytes::<File>(&BYTES[..length]), Err(xdr::DecodeError::Ended), "{length}");
    }
    let more = [BYTES, &[0]].concat();
    assert_eq!(xdr::from_bytes::<File>(&more), Err(xdr::DecodeError::Trailing(1)));
}

#[test]
fn a_name_longer_than_its_bound_is_refused_on_both_ways() {
    assert!(xdr::Text::<32>::try_from("x".repeat(32)).is_ok());
    let error = xdr::Text::<32>::try_from("x".repeat(33)).unwrap_err();
    assert_eq!(error.to_string(), "a length of 33 is above the bound of its type, which is 32");

    let sent = |length| xdr::to_vec(&xdr::Text::<33>::try_from("x".repeat(length)).unwrap());
    assert_eq!(xdr::from_bytes::<xdr::Text<32>>(&sent(33)), Err(error));
    assert!(xdr::from_bytes::<xdr::Text<32>>(&sent(32)).is_ok());
}
