//! Every mistake in a specification is named, at its place.

/// Each specification with the one mistake that it has.
const MISTAKES: &[(&str, &str)] = &[
    ("struct s { int a }", "1:18: expected `;`, found `}`"),
    ("struct s { };", "1:12: expected a type, found `}`"),
    ("struct s { void; };", "1:12: a field cannot be `void`"),
    ("struct s { int a; }", "1:20: expected `;`, found the end of the file"),
    ("typedef void nothing;", "1:14: expected a type other than `void` before it, found `nothing`"),
    ("typedef unsigned x;", "1:18: expected `int` or `hyper` after `unsigned`, found `x`"),
    ("struct s { struct t a; };", "1:19: expected `{`, found `t`: a type is used by its name, without `struct`"),
    ("const A = B;", "1:11: expected a number, found `B`"),
    ("const A = 0x;", "1:11: `0x` is not a number: decimal (-12), hexadecimal (0x1f) or octal (017)"),
    ("const A = 08;", "1:11: `08` is not a number: decimal (-12), hexadecimal (0x1f) or octal (017)"),
    ("const A = -0x1;", "1:11: `-0x1` is not a number: decimal (-12), hexadecimal (0x1f) or octal (017)"),
    (
        "const A = 18446744073709551616;",
        "1:7: a constant is between -9223372036854775808 and 18446744073709551615 here, not 18446744073709551616",
    ),
    ("const A = 1;\nconst A = 2;", "2:7: `A` is declared twice"),
    ("enum a { X = 1 };\nenum b { X = 2 };", "2:10: `X` is declared twice"),
    ("enum a { X = 1, Y = 1 };", "1:17: `Y` has the number of `X`"),
    (
        "enum a { X = 2147483648 };",
        "1:14: the number of a member is between -2147483648 and 2147483647 here, not 2147483648",
    ),
    ("enum a { TRUE = 1 };", "1:10: `TRUE` is declared twice"),
    ("typedef int a[N];", "1:15: `N` is no constant and no member of an enumeration before it"),
    ("typedef int a[0];", "1:15: a length is between 1 and 4294967295 here, not 0"),
    ("typedef int a<-1>;", "1:15: a length is between 0 and 4294967295 here, not -1"),
    ("typedef b a;", "1:9: there is no type `b`"),
    ("const b = 1; typedef b a;", "1:22: `b` is a constant, not a type"),
    (
        "typedef int some_name; typedef int SomeName;",
        "1:36: `SomeName` and `some_name` would have the same name in Rust",
    ),
    ("struct s { int aB; int a_b; };", "1:24: `a_b` and `aB` would have the same name in Rust"),
    (
        "union u switch (float f) { case 1: void; };",
        "1:17: a union switches on `int`, `unsigned int`, `bool` or an enumeration (section 4.15)",
    ),
    ("union u switch (int f) { default: void; };", "1:26: expected `case`, found `default`"),
    ("union u switch (int f) { case 1: case 1: void; };", "1:39: there are two cases for 1"),
    ("union u switch (bool f) { case 2: void; };", "1:32: a case is between 0 and 1 here, not 2"),
    ("enum e { X = 1 }; union u switch (e f) { case 2: void; };", "1:47: `e` has no member with the number 2"),
    ("struct s { s a; };", "1:8: `s` contains a `s`: make one of them optional, with `*`"),
    ("struct s { t a[2]; }; typedef s t;", "1:8: `s` contains a `s`: make one of them optional, with `*`"),
    (
        "typedef a b; typedef b a; union u switch (a f) { case 1: void; };",
        "1:43: a union switches on `int`, `unsigned int`, `bool` or an enumeration (section 4.15)",
    ),
    ("program P { } = 1;", "1:1: a `program` belongs to remote procedure calls (RFC 5531), not to XDR: delete it"),
    (
        "%#include <stdio.h>",
        "1:1: lines that begin with `%` are for another compiler, and no part of XDR: delete this one",
    ),
    ("/* never closed", "1:1: a comment without `*/`"),
    ("int a;", "1:1: expected `const`, `typedef`, `enum`, `struct` or `union`, found `int`"),
    ("; const", "1:1: expected a definition, found `;`"),
    ("struct int { int a; };", "1:8: expected a name, found `int`"),
    ("typedef int é;", "1:13: `\\u{e9}` begins nothing in XDR"),
];

#[test]
fn each_mistake_is_named_where_it_stands() {
    for (specification, expected) in MISTAKES {
        let error = xdr_build::generate(specification).expect_err(specification);
        assert_eq!(error.to_string(), *expected, "{specification}");
    }
}

#[test]
fn types_inside_types_end_at_some_depth() {
    let open = "struct s { ".to_owned() + &"struct { ".repeat(100_000);
    assert!(xdr_build::generate(&open).is_err());
    let deep = "struct s { ".to_owned() + &"struct { ".repeat(40) + "int a;" + &"} a;".repeat(40) + "};";
    assert!(xdr_build::generate(&deep).unwrap_err().message.contains("more than 32 deep"));
}

#[test]
fn no_text_makes_the_compiler_panic() {
    let words = [
        "struct", "union", "switch", "case", "a", "b", "1", "{", "}", "(", ")", ";", ":", "<", ">", "[", "]", "*",
        "enum", "=",
    ];
    // A linear congruential generator: the texts are the same in each run.
    let mut state = 1u64;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..12 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            text += words[(state >> 33) as usize % words.len()];
            text.push(' ');
        }
        let _ = xdr_build::generate(&text);
    }
}
