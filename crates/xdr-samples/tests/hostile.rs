//! Input with false lengths and nesting costs neither memory nor stack beyond the size of the input.

use xdr::{Codec, DecodeError, Decoder, Xdr};
use xdr_samples::kinds::{Compound, List, Tree};
use xdr_samples::samples::Samples;

#[test]
fn a_length_that_the_input_cannot_hold_is_refused_before_memory_is_taken() {
    // Were memory taken first, these would ask for 112 and 4 GiB.
    for codec in [Codec::Bulk, Codec::FieldByField] {
        let lie = u32::MAX.to_be_bytes();
        assert_eq!(Samples::decode(&mut Decoder::new(&lie, codec)), Err(DecodeError::Ended));
        let opaque = xdr::Opaque::<{ xdr::UNBOUNDED }>::decode(&mut Decoder::new(&lie, codec));
        assert_eq!(opaque, Err(DecodeError::Ended));
    }
}

#[test]
fn as_many_elements_as_the_input_holds_are_the_most_that_are_believed() {
    let two = [2u32.to_be_bytes(), 7u32.to_be_bytes(), 8u32.to_be_bytes()].concat();
    type Numbers = xdr::Array<i32, { xdr::UNBOUNDED }>;
    assert_eq!(xdr::from_bytes::<Numbers>(&two).as_deref(), Ok(&[7, 8][..]));
    let three = [3u32.to_be_bytes(), 7u32.to_be_bytes(), 8u32.to_be_bytes()].concat();
    assert_eq!(xdr::from_bytes::<Numbers>(&three), Err(DecodeError::Ended));
}

/// `length` items, each after a flag that marks it as present.
fn list(length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for item in 0..length as u32 {
        bytes.extend(item.to_be_bytes());
        bytes.extend(u32::from(item + 1 < length as u32).to_be_bytes());
    }
    bytes
}

#[test]
fn a_list_may_be_as_long_as_the_decoder_allows() {
    // The first item is no optional data, so 256 levels hold 257 items.
    assert!(xdr::from_bytes::<List>(&list(257)).is_ok());
    assert_eq!(xdr::from_bytes::<List>(&list(258)), Err(DecodeError::TooDeep));
    let long = list(2000);
    assert!(List::decode(&mut Decoder::new(&long, Codec::Bulk).depth(1999)).is_ok());
    assert_eq!(List::decode(&mut Decoder::new(&long, Codec::Bulk).depth(1998)), Err(DecodeError::TooDeep));
}

#[test]
fn a_tree_of_a_million_levels_is_refused_and_a_wide_one_is_not() {
    let level = [0u32.to_be_bytes(), 1u32.to_be_bytes()].concat();
    assert_eq!(xdr::from_bytes::<Tree>(&level.repeat(1_000_000)), Err(DecodeError::TooDeep));

    let wide = [0, 10_000].into_iter().chain([0, 0].repeat(10_000)).flat_map(u32::to_be_bytes);
    let tree: Tree = xdr::from_bytes(&wide.collect::<Vec<u8>>()).unwrap();
    assert_eq!(tree.children.len(), 10_000);
}

#[test]
fn padding_that_is_not_zero_is_refused() {
    for (at, expected) in [(5, Err(DecodeError::Padding)), (4, Ok(true))] {
        let mut bytes = [0, 0, 0, 1, b'x', 0, 0, 0];
        bytes[at] = 1;
        let decoded = xdr::from_bytes::<xdr::Opaque<7>>(&bytes).map(|opaque| opaque.len() == 1);
        assert_eq!(decoded, expected);
    }
}

#[test]
fn what_is_neither_true_nor_false_is_refused() {
    assert_eq!(xdr::from_bytes::<bool>(&2u32.to_be_bytes()), Err(DecodeError::NotBoolean(2)));
    assert_eq!(xdr::from_bytes::<Option<Box<i32>>>(&[0, 0, 0, 2, 0, 0, 0, 0]), Err(DecodeError::NotBoolean(2)));
}

#[test]
fn a_string_that_is_no_text_is_refused() {
    assert_eq!(xdr::from_bytes::<xdr::Text<4>>(&[0, 0, 0, 1, 0xff, 0, 0, 0]), Err(DecodeError::NotText));
}

#[test]
fn random_input_neither_panics_nor_takes_much() {
    proptest::proptest!(|(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200))| {
        let _ = xdr::from_bytes::<Compound>(&bytes);
        let _ = xdr::from_bytes::<Tree>(&bytes);
    });
}

#[test]
fn a_slice_that_is_too_short_stays_as_it_was() {
    let mut room = [0xaa; 7];
    let error = xdr::encode_into(&1i64, &mut room, Codec::Bulk).unwrap_err();
    assert_eq!(error.to_string(), "the encoding takes 8 bytes and there is room for 7");
    assert_eq!(room, [0xaa; 7]);
}
