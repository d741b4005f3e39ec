//! Lists of architectures on the command line, in which `all` stands for each of them.

use std::str::FromStr;

use heddle::Architecture;
use heddle::error::UnknownArchitecture;

/// One of the architectures that an option lists: its name, or `all`.
#[derive(Clone, Copy)]
pub enum Listed {
    /// All that [`Architecture::all`] has.
    All,
    /// This one.
    One(Architecture),
}

impl FromStr for Listed {
    type Err = UnknownArchitecture;

    fn from_str(name: &str) -> Result<Self, UnknownArchitecture> {
        if name == "all" { Ok(Listed::All) } else { name.parse().map(Listed::One) }
    }
}

/// The architectures of a list, each once, in the order of the list.
pub fn listed(names: &[Listed]) -> Vec<Architecture> {
    let mut architectures = Vec::new();
    for name in names {
        let named: Vec<_> = match name {
            Listed::All => Architecture::all().collect(),
            Listed::One(one) => vec![*one],
        };
        for arch in named {
            if !architectures.contains(&arch) {
                architectures.push(arch);
            }
        }
    }
    architectures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_architectures_or_all_and_has_each_once() {
        let list =
            |words: &str| listed(&words.split(',').map(|word| word.parse().expect("a name")).collect::<Vec<_>>());
        let [one, two] = ["connp-l:128", "up"].map(|name| name.parse::<Architecture>().expect("a name"));
        assert_eq!(list("connp-l,up,connp-l:128"), [one, two]);
        assert_eq!(list("all"), Architecture::all().collect::<Vec<_>>());
        let all = list("connp-l,all");
        assert_eq!((all[0], all.len()), (one, Architecture::all().count()));
        assert!("everything".parse::<Listed>().is_err());
    }
}
