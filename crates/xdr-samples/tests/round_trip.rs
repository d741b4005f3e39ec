//! Values to bytes and back, for every kind of declaration, by both codecs.

use proptest::prelude::*;
use xdr::{Codec, DecodeError, Decoder, Encoder, Quadruple, Xdr};
use xdr_samples::kinds::*;
use xdr_samples::samples::{Sample, Samples};

/// Encodes by `codec`.
fn encoded<T: Xdr>(value: &T, codec: Codec) -> Vec<u8> {
    let mut bytes = vec![0xaa; value.encoded_len()];
    let mut to = Encoder::new(&mut bytes, codec);
    value.encode(&mut to);
    assert_eq!(to.room(), 0, "encoded_len is what is written");
    bytes
}

/// The value comes back, its bytes are units, and both codecs agree.
fn returns<T: Xdr + PartialEq + std::fmt::Debug>(value: &T) -> Result<(), TestCaseError> {
    let bytes = encoded(value, Codec::Bulk);
    prop_assert_eq!(&bytes, &encoded(value, Codec::FieldByField));
    prop_assert_eq!(bytes.len() % xdr::UNIT, 0);
    prop_assert!(bytes.len() >= T::LEAST);
    prop_assert!(T::FIXED.is_none_or(|length| length == bytes.len()));
    for codec in [Codec::Bulk, Codec::FieldByField] {
        let mut from = Decoder::new(&bytes, codec);
        prop_assert_eq!(&T::decode(&mut from).unwrap(), value);
        prop_assert!(from.rest().is_empty());
    }
    Ok(())
}

/// Whatever decodes encodes to the same bytes: there are no two encodings of one value.
fn canonical<T: Xdr>(bytes: &[u8]) -> Result<(), TestCaseError> {
    let bulk = xdr::prefix_from_bytes::<T>(bytes);
    let mut by_field = Decoder::new(bytes, Codec::FieldByField);
    let other = T::decode(&mut by_field);
    prop_assert_eq!(bulk.as_ref().err(), other.as_ref().err());
    if let Ok((value, rest)) = bulk {
        prop_assert_eq!(&bytes[..bytes.len() - rest.len()], xdr::to_vec(&value));
    }
    Ok(())
}

fn colour() -> impl Strategy<Value = Colour> {
    prop_oneof![Just(Colour::Red), Just(Colour::Green), Just(Colour::Blue)]
}

prop_compose! {
    fn scalars()(a: i32, b: u32, c: i64, d: u64, e in -1e6f32..1e6, f in -1e9..1e9, g: [u8; 16], h: bool, i in colour()) -> Scalars {
        Scalars { a, b, c, d, e, f, g: Quadruple(g), h, i }
    }
}

fn point() -> impl Strategy<Value = Point> {
    any::<(i32, i64)>().prop_map(|(x, y)| Point { x, y })
}

fn text<const MAX: u32>(most: usize) -> impl Strategy<Value = xdr::Text<MAX>> {
    proptest::collection::vec(any::<char>(), 0..=most / 4)
        .prop_map(|letters| letters.into_iter().collect::<String>().try_into().unwrap())
}

fn bytes<const MAX: u32>(most: usize) -> impl Strategy<Value = xdr::Opaque<MAX>> {
    proptest::collection::vec(any::<u8>(), 0..=most).prop_map(|bytes| bytes.try_into().unwrap())
}

fn array<T: std::fmt::Debug, const MAX: u32>(
    of: impl Strategy<Value = T>,
    most: usize,
) -> impl Strategy<Value = xdr::Array<T, MAX>> {
    proptest::collection::vec(of, 0..=most).prop_map(|elements| elements.try_into().ok().unwrap())
}

fn inner() -> impl Strategy<Value = CompoundInner> {
    (any::<i32>(), any::<Option<[u8; 5]>>()).prop_map(|(r#type, key)| CompoundInner {
        r#type,
        r#match: key.map_or(CompoundInnerMatch::False, CompoundInnerMatch::True),
    })
}

prop_compose! {
    fn compound()(
        (key, names, pairs, the_flags) in
            (any::<[u8; 5]>(), array(text(12), 4), array(any::<[i32; 2]>(), 9), array(any::<bool>().prop_map(|set| FlagsItem { set }), 3)),
        (raw, loose, free) in (bytes(7), bytes(40), text(40)),
        (corners, centre) in ([point(), point(), point(), point()], proptest::option::of(point().prop_map(Box::new))),
        state in prop_oneof![Just(CompoundState::Off), Just(CompoundState::On)],
        inner in inner(),
    ) -> Compound {
        Compound { key, names, pairs, the_flags, raw, loose, free, corners, centre, state, inner }
    }
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = any::<i32>().prop_map(|item| Tree { item, children: xdr::Array::default() });
    leaf.prop_recursive(5, 40, 4, |inner| {
        (any::<i32>(), proptest::collection::vec(inner, 0..4))
            .prop_map(|(item, children)| Tree { item, children: children.try_into().ok().unwrap() })
    })
}

proptest! {
    #[test]
    fn every_value_returns(scalars in scalars(), compound in compound(), tree in tree()) {
        returns(&scalars)?;
        returns(&compound)?;
        returns(&tree)?;
    }

    #[test]
    fn every_case_of_a_union_returns(form: i32, unsigned: u32, small: i32, large in -1e9..1e9) {
        let default = match form {
            1 => Number::Case1(small),
            -5 => Number::CaseMinus5(small),
            255 => Number::Case255,
            other => Number::Default(other, large),
        };
        returns(&default)?;
        for number in [Number::Case1(small), Number::CaseMinus5(small), Number::Case255] {
            returns(&number)?;
        }
        returns(&match unsigned { u32::MAX => Quiet::Case4294967295(small), other => Quiet::Default(other) })?;
        returns(&Quiet::Case4294967295(small))?;
        for painted in [Painted::Red(small), Painted::Green, Painted::Blue] {
            returns(&painted)?;
        }
    }

    #[test]
    fn samples_return(samples in proptest::collection::vec(any::<(i32, u32, i64, i16, i32)>(), 0..60)) {
        let samples = samples.into_iter().map(|(channel, sequence, at, level, reading)| Sample {
            channel, sequence, at, level: level.into(), reading: reading.into(),
        });
        let samples: Samples = samples.collect::<Vec<_>>().try_into().unwrap();
        returns(&samples)?;
    }

    #[test]
    fn bytes_that_decode_are_the_bytes_of_their_value(bytes in units()) {
        canonical::<Compound>(&bytes)?;
        canonical::<Number>(&bytes)?;
        canonical::<Quiet>(&bytes)?;
        canonical::<Painted>(&bytes)?;
        canonical::<Tree>(&bytes)?;
        canonical::<List>(&bytes)?;
        canonical::<xdr::Array<xdr::Text<5>, 9>>(&bytes)?;
        canonical::<xdr::Array<bool, 9>>(&bytes)?;
    }

    #[test]
    fn a_changed_byte_is_an_error_or_another_value(compound in compound(), at: prop::sample::Index, to: u8) {
        let mut bytes = xdr::to_vec(&compound);
        let at = at.index(bytes.len());
        let before = std::mem::replace(&mut bytes[at], to);
        let decoded = xdr::from_bytes::<Compound>(&bytes);
        prop_assert!(before == to || decoded != Ok(compound));
        canonical::<Compound>(&bytes)?;
    }
}

/// Input that looks like counts, discriminants and flags often enough to come far.
fn units() -> impl Strategy<Value = Vec<u8>> {
    let unit = prop_oneof![4 => 0u32..4, 1 => Just(0xffff_fffb), 1 => any::<u32>()];
    proptest::collection::vec(unit, 0..40).prop_map(|units| units.into_iter().flat_map(u32::to_be_bytes).collect())
}

#[test]
fn an_enumeration_takes_its_members_numbers_alone() {
    assert_eq!(xdr::to_vec(&Colour::Blue), (-5i32).to_be_bytes());
    let error = xdr::from_bytes::<Colour>(&4u32.to_be_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "Colour has no member with the number 4");
    // A union without a default takes its cases alone.
    let error = xdr::from_bytes::<CompoundInnerMatch>(&2u32.to_be_bytes()).unwrap_err();
    assert_eq!(error, DecodeError::Unassigned { name: "CompoundInnerMatch", number: 2 });
}

#[test]
fn constants_have_their_values() {
    assert_eq!((DOZEN, MASK, MODE, LEAST), (12, 255, 0o755, -5));
    assert_eq!(CompoundState::On as i32, 12);
}
