//! The words of `xtask/words.txt`: the field has others for them, and private words are hard to read for a newcomer.
//!
//! A text is divided into words at each character that is not a letter, and within a name before an upper-case letter that
//! follows a lower-case one, so that names count like prose. An entry of several words matches them on one line.

/// An entry: its words in lower case, and what to write instead.
pub(super) struct Entry {
    words: Vec<String>,
    instead: String,
}

/// The entries of the list. An error names the line that is none.
pub(super) fn parse(list: &str) -> Result<Vec<Entry>, String> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entries = lines.map(|line| {
        let (words, instead) =
            line.split_once(": ").ok_or(format!("{line:?} is not `WORDS: what to write instead`"))?;
        Ok(Entry { words: self::words(words), instead: instead.to_owned() })
    });
    entries.collect()
}

/// The complaints about a file.
pub(super) fn private_words(path: &str, text: &str, entries: &[Entry]) -> Vec<String> {
    let mut broken = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let words = words(line);
        for Entry { words: sought, instead } in entries {
            if words.windows(sought.len()).any(|window| window == sought) {
                broken.push(format!("{path}:{}: \"{}\"; write: {instead}", number + 1, sought.join(" ")));
            }
        }
    }
    broken
}

fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for run in line.split(|letter: char| !letter.is_alphabetic()).filter(|run| !run.is_empty()) {
        let (mut word, mut lower) = (String::new(), false);
        for letter in run.chars() {
            if letter.is_uppercase() && lower {
                words.push(std::mem::take(&mut word));
            }
            lower = letter.is_lowercase();
            word.extend(letter.to_lowercase());
        }
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> usize {
        let entries = parse("# A comment.\n\ncrew: workers\nto be had: available\n").expect("two entries");
        private_words("a.rs", line, &entries).len()
    }

    #[test]
    fn whole_words_and_parts_of_names_match() {
        for line in ["The crew works.", "let crew_size = 1;", "struct LoadCrew;", "CREW", "none is to be had here"] {
            assert_eq!(found(line), 1, "{line}");
        }
        for line in ["screw", "crews", "it had to be", "to be", "Crewe"] {
            assert_eq!(found(line), 0, "{line}");
        }
    }

    #[test]
    fn a_complaint_has_the_place_and_the_remedy() {
        let entries = parse("crew: workers").expect("an entry");
        let complaints = private_words("a.rs", "fine\na crew\n", &entries);
        assert_eq!(complaints, ["a.rs:2: \"crew\"; write: workers"]);
    }

    #[test]
    fn a_line_that_is_no_entry_is_an_error() {
        let error = parse("crew").err();
        assert_eq!(error.as_deref(), Some("\"crew\" is not `WORDS: what to write instead`"));
    }
}
