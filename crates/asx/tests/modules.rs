//! The modules without a stream: every message that goes down comes up again, however the bytes in between are split,
//! and no length that a peer announces costs memory.

use asx::modules::{checksum, frame, trace, xdr};
use asx::{Catalogue, Message, Module, Passed, Side};
use proptest::prelude::*;

/// Runs one side of a module; the messages that it passes on, or its error.
fn run(module: &mut Module, side: Side, messages: impl IntoIterator<Item = Message>) -> Result<Vec<Message>, String> {
    let mut to = Passed::default();
    for message in messages {
        if let Some(left) = module.queue(side).put(message, &mut to)? {
            module.queue(side).svc(left, &mut to)?;
        }
    }
    Ok(to.into_messages())
}

fn bytes(messages: Vec<Message>) -> Vec<Vec<u8>> {
    messages.into_iter().map(|message| message.into_bytes().expect("bytes")).collect()
}

/// `stream` in pieces of these lengths, again and again.
fn split(stream: &[u8], lengths: &[usize]) -> Vec<Message> {
    let mut lengths = lengths.iter().cycle();
    let mut rest = stream;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let (piece, left) = rest.split_at(rest.len().min(lengths.next().copied().unwrap_or(1)));
        pieces.push(Message::from(piece));
        rest = left;
    }
    pieces
}

fn framed(limits: frame::RecordLimits) -> Module {
    limits.module().expect("limits that a header can say")
}

proptest! {
    #[test]
    fn records_survive_every_split(
        records in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..8),
        fragment in 1_usize..50,
        lengths in proptest::collection::vec(1_usize..20, 1..6),
    ) {
        let mut module = framed(frame::RecordLimits { record: 40, fragment });
        let wire = bytes(run(&mut module, Side::Write, records.iter().map(|record| record[..].into())).unwrap()).concat();
        let read = run(&mut module, Side::Read, split(&wire, &lengths)).unwrap();
        prop_assert_eq!(bytes(read), records);
        prop_assert!(module.queue(Side::Read).end(&mut Passed::default()).is_ok());
    }

    #[test]
    fn a_reader_that_is_closed_inside_a_record_passes_on_what_another_reads_to_its_end(
        records in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..5),
        fragment in 1_usize..20,
        at in any::<prop::sample::Index>(),
    ) {
        let limits = frame::RecordLimits { record: 40, fragment };
        let wire =
            bytes(run(&mut framed(limits), Side::Write, records.iter().map(|record| record[..].into())).unwrap()).concat();
        let (before, after) = wire.split_at(at.index(wire.len()));
        let mut first = framed(limits);
        let mut read = run(&mut first, Side::Read, [before.into()]).unwrap();
        let mut held = Passed::default();
        first.queue(Side::Read).close(&mut held);
        let rest = held.into_messages().into_iter().chain([after.into()]);
        read.extend(run(&mut framed(limits), Side::Read, rest).unwrap());
        prop_assert_eq!(bytes(read), records);
    }

    #[test]
    fn a_record_is_never_longer_than_the_limit(stream in proptest::collection::vec(any::<u8>(), 0..200), most in 0_usize..64) {
        let mut module = framed(frame::RecordLimits { record: most, fragment: 9 });
        let mut to = Passed::default();
        for piece in split(&stream, &[3]) {
            if module.queue(Side::Read).svc(piece, &mut to).is_err() {
                break;
            }
        }
        for record in bytes(to.into_messages()) {
            prop_assert!(record.len() <= most, "{} bytes", record.len());
        }
    }

    #[test]
    fn a_checksum_comes_off_again_and_finds_a_changed_bit(data in proptest::collection::vec(any::<u8>(), 0..300), bit in any::<prop::sample::Index>()) {
        let mut module = checksum::module();
        let mut summed = bytes(run(&mut module, Side::Write, [data[..].into()]).unwrap()).concat();
        prop_assert_eq!(bytes(run(&mut module, Side::Read, [summed[..].into()]).unwrap()), [data]);
        let bit = bit.index(summed.len() * 8);
        summed[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(run(&mut module, Side::Read, [summed[..].into()]).is_err());
    }

    #[test]
    fn values_and_bytes_survive_their_encoding(values in proptest::collection::vec(any::<i32>(), 0..20), data in proptest::collection::vec(any::<u8>(), 0..50)) {
        type Values = ::xdr::Array<i32, 20>;
        let mut module = xdr::of::<Values>(::xdr::Codec::Bulk);
        let value = Values::try_from(values).unwrap();
        let encoded = run(&mut module, Side::Write, [Message::value(value.clone())]).unwrap();
        prop_assert_eq!(encoded[0].as_bytes().unwrap(), ::xdr::to_vec(&value));
        let decoded = run(&mut module, Side::Read, encoded).unwrap().pop().unwrap();
        prop_assert_eq!(decoded.into_value::<Values>().unwrap(), value);

        let mut module = xdr::opaque();
        let encoded = run(&mut module, Side::Write, [data[..].into()]).unwrap();
        prop_assert_eq!(encoded[0].as_bytes().unwrap().len() % 4, 0);
        prop_assert_eq!(bytes(run(&mut module, Side::Read, encoded).unwrap()), [data]);
    }

    #[test]
    fn no_bytes_make_a_module_panic(stream in proptest::collection::vec(any::<u8>(), 0..64)) {
        for text in ["frame max=16", "checksum", "xdr"] {
            let mut module = Catalogue::default().module(text).unwrap();
            _ = run(&mut module, Side::Read, [stream[..].into()]);
        }
    }
}

#[test]
fn a_hostile_length_is_refused_before_its_bytes() {
    let mut module = framed(frame::RecordLimits { record: 1000, fragment: 100 });
    let error = run(&mut module, Side::Read, [vec![0xff; 4].into()]).unwrap_err();
    assert_eq!(error, "a record of 0 and 2147483647 more bytes is longer than the longest, 1000");
    // Fragments that are short, of a record that is long.
    let mut module = framed(frame::RecordLimits { record: 3, fragment: 100 });
    let fragment = || Message::bytes([0, 0, 0, 2, 1, 2]);
    let error = run(&mut module, Side::Read, [fragment(), fragment()]).unwrap_err();
    assert_eq!(error, "a record of 2 and 2 more bytes is longer than the longest, 3");
    let error = run(&mut xdr::opaque(), Side::Read, [vec![0xff; 8].into()]).unwrap_err();
    assert!(error.contains("end"), "{error}");
}

#[test]
fn a_record_has_the_bytes_of_the_rfc() {
    let mut module = framed(frame::RecordLimits { record: 10, fragment: 2 });
    let wire = bytes(run(&mut module, Side::Write, [vec![1, 2, 3].into(), vec![].into()]).unwrap());
    assert_eq!(wire, [vec![0, 0, 0, 2, 1, 2, 0x80, 0, 0, 1, 3], vec![0x80, 0, 0, 0]]);
    let error = run(&mut module, Side::Write, [vec![0; 11].into()]).unwrap_err();
    assert!(error.contains("longer than the longest record, 10"), "{error}");
}

#[test]
fn an_end_inside_a_record_is_an_error() {
    let mut module = framed(frame::RecordLimits::default());
    assert!(run(&mut module, Side::Read, [vec![0x80, 0, 0, 2, 7].into()]).unwrap().is_empty());
    let error = module.queue(Side::Read).end(&mut Passed::default()).unwrap_err();
    assert_eq!(error, "the end is inside a record, after 1 of its bytes");
}

#[test]
fn a_trace_reports_and_changes_nothing() {
    let (lines, reported) = std::sync::mpsc::channel();
    let mut module = trace::module(move |line| _ = lines.send(line.to_string()));
    let passed = run(&mut module, Side::Write, [vec![1, 2].into(), vec![3].into()]).unwrap();
    assert_eq!(bytes(passed), [vec![1, 2], vec![3]]);
    drop(module);
    let me = std::thread::current().name().unwrap_or_default().to_owned();
    let lines: Vec<String> = reported.iter().collect();
    assert_eq!(lines, [format!("write 0: 2 bytes, by {me}"), format!("write 1: 1 bytes, by {me}")]);
}

#[test]
fn a_text_is_taken_as_a_whole_or_refused_with_the_reason() {
    let catalogue = Catalogue::default();
    let names =
        |text: &str| catalogue.modules(text).map(|modules| modules.iter().map(|m| m.name().to_owned()).collect());
    assert_eq!(names(""), Ok(Vec::<String>::new()));
    let text = "xdr | frame max=4096 fragment=512 low=10 high=20 | trace name=wire";
    assert_eq!(names(text), Ok(vec!["xdr".to_owned(), "frame".to_owned(), "wire".to_owned()]));
    for (text, reason) in [
        ("frame |", "module ``: a name is missing; write modules as `frame max=4096 | checksum`"),
        ("gzip", "module `gzip`: there is no such module; the modules are checksum, frame, trace, xdr"),
        ("frame max", "module `frame`: `max` is not an option; write KEY=VALUE"),
        ("frame max=x", "module `frame`: `x` is not a value of `max`"),
        ("frame max=1 max=2", "module `frame`: `max` is given twice"),
        ("frame fragment=0", "module `frame`: fragments of 0 bytes: give 1 to 2147483647"),
        ("checksum max=1", "module `checksum`: the module has no option `max`"),
        ("checksum low=9 high=9", "module `checksum`: low=9 is not below high=9"),
    ] {
        assert_eq!(names(text).unwrap_err().to_string(), reason);
    }
}
