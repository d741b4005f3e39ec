//! The declaration macro behind [`Counter`](crate::Counter) and [`DropReason`](crate::DropReason).
//!
//! A declaration is one line, `Variant "Sentence."`. The kebab-case name is computed from the variant at compile time,
//! so a name cannot drift from its variant.

/// Length in bytes of the kebab-case form of a CamelCase identifier.
pub(crate) const fn kebab_len(camel: &str) -> usize {
    let bytes = camel.as_bytes();
    let mut len = bytes.len();
    let mut i = 1;
    while i < bytes.len() {
        if bytes[i].is_ascii_uppercase() {
            len += 1;
        }
        i += 1;
    }
    len
}

/// The kebab-case form of a CamelCase identifier; `N` must be [`kebab_len`] of it.
pub(crate) const fn kebab<const N: usize>(camel: &str) -> [u8; N] {
    let bytes = camel.as_bytes();
    let mut out = [0; N];
    let (mut i, mut o) = (0, 0);
    while i < bytes.len() {
        if i > 0 && bytes[i].is_ascii_uppercase() {
            out[o] = b'-';
            o += 1;
        }
        out[o] = bytes[i].to_ascii_lowercase();
        o += 1;
        i += 1;
    }
    out
}

/// Declares an enum with a name, a sentence and a dense index for each variant.
macro_rules! declare {
    ($(#[$meta:meta])* $vis:vis enum $Enum:ident { $($Variant:ident $sentence:literal)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        $vis enum $Enum {
            $(#[doc = $sentence] $Variant,)*
        }

        impl $Enum {
            /// Every variant, in order of declaration: `ALL[v.index()] == v`.
            pub const ALL: &'static [Self] = &[$(Self::$Variant,)*];

            /// How many variants there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The position in [`Self::ALL`], below [`Self::COUNT`].
            #[inline]
            pub const fn index(self) -> usize {
                self as usize
            }

            /// The name in kebab case, as it appears in tables, reports and the control plane.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Variant => {
                        const NAME: [u8; $crate::declare::kebab_len(stringify!($Variant))] =
                            $crate::declare::kebab(stringify!($Variant));
                        match core::str::from_utf8(&NAME) {
                            Ok(name) => name,
                            Err(_) => unreachable!(),
                        }
                    })*
                }
            }

            /// Its meaning, in one sentence.
            pub const fn describe(self) -> &'static str {
                match self {
                    $(Self::$Variant => $sentence,)*
                }
            }

            /// The variant with this kebab-case name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|v| v.name() == name)
            }
        }

        impl core::fmt::Display for $Enum {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::{Counter, DropReason};

    #[test]
    fn names_are_kebab_case() {
        assert_eq!(DropReason::TcpBadChecksum.name(), "tcp-bad-checksum");
        assert_eq!(DropReason::Ipv4BadHeader.name(), "ipv4-bad-header");
        assert_eq!(Counter::SegmentsIn.to_string(), "segments-in");
    }

    fn check<T: Copy + std::fmt::Debug>(all: &[T], name: fn(T) -> &'static str, text: fn(T) -> &'static str) {
        let mut seen = std::collections::HashSet::new();
        for &v in all {
            assert!(seen.insert(name(v)), "{v:?}: name is taken twice");
            assert!(text(v).ends_with('.') && text(v).len() > 10, "{v:?}: wants a sentence");
        }
    }

    #[test]
    fn every_declaration_has_its_own_name_and_a_sentence() {
        check(Counter::ALL, Counter::name, Counter::describe);
        check(DropReason::ALL, DropReason::name, DropReason::describe);
    }

    #[test]
    fn index_and_from_name_invert() {
        for (i, &reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), i);
            assert_eq!(DropReason::from_name(reason.name()), Some(reason));
        }
        assert_eq!(DropReason::from_name("no-such-reason"), None);
    }
}
