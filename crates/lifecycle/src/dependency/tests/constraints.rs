//! Constraints: what is accepted, what it becomes, and that equivalent spellings become equal.

use super::*;

fn canonical(language: Language, text: &str) -> Option<String> {
    parse_version(language, "x", text).ok()
}

/// Each row: spellings that are one constraint, the canonical one first.
#[test]
fn equivalent_spellings_are_equal() {
    let ruby = [
        vec![">= 0", ">=0", ">= 0.0", " >=  0 "],
        vec!["= 2.5", "2.5", "=2.5", "2.5.0", "= 02.5"],
        vec!["~> 2.5", "~>2.5", "~>  2.5", "~> 02.5"],
        vec!["~> 2.5.0"],
        vec!["~> 2"],
        vec![">= 1, < 3", "< 3,>=1", ">= 1.0, < 3.0.0, >= 1"],
        vec!["!= 1.3", "!=1.3"],
        vec!["= 1.rc.1", "1.0.rc1", "= 1.0.0.rc.1", "1.rc1.0"],
        vec!["= 1.pre.beta.2", "1.0-beta.2", "1-beta2"],
        vec!["~> 1.0.rc.1", "~> 1.0.rc1"],
        vec!["= 0.a", "0.0.a"],
        vec!["= 20240102030405", "20240102030405"],
        vec!["= 1.A"],
        vec!["= 1.a", "1.a.0", "1.a0"],
    ];
    let python = [
        vec![">=0", ">= 0", ">=0.0"],
        vec!["==2.5", "2.5", "== 2.5", "2.5.0", "==02.5", "v2.5"],
        vec!["==2.5.*", "2.5.*"],
        vec!["==2.5.0.*"],
        vec!["~=2.5", "~= 2.5"],
        vec!["~=2.5.0"],
        vec![">=1,<3", "<3, >=1", ">=1.0,<3.0,>=1"],
        vec!["!=1.3", "!= 1.3.0"],
        vec!["!=1.3.*"],
        vec!["==1rc1", "1.0-rc.1", "1.0RC1", "==1.0c1"],
        vec!["==1.post2", "1.0-2", "1.0.post2", "1.0rev2"],
        vec!["==1.dev3", "1.0.dev3", "1.0DEV3"],
        vec!["==1!2", "1!2.0"],
        vec!["==1+local.1", "1.0+Local_1"],
        vec!["===1.0"],
    ];
    for (language, classes) in [(Ruby, ruby.to_vec()), (Python, python.to_vec())] {
        let mut seen = std::collections::BTreeSet::new();
        for class in classes {
            for spelling in &class {
                assert_eq!(
                    canonical(language, spelling).as_deref(),
                    class.first().copied(),
                    "{spelling}"
                );
            }
            assert!(seen.insert(class.first().copied()), "{class:?} is another class");
        }
    }
}

/// A small deterministic generator (xorshift), so that a failure can be repeated.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(sides).unwrap()).unwrap()
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.roll(choices.len())]
    }
}

const OPERATORS: [&[&str]; 2] =
    [&["==", "!=", "<", "<=", ">", ">=", "~="], &["", "=", "!=", "<", "<=", ">", ">=", "~>"]];
const PRERELEASES: [&[&str]; 2] = [
    &["", "", "", "a1", "b0", "rc2", ".post1", ".dev0"],
    &["", "", "", ".a", ".rc1", "-beta.2", ".0.b0"],
];

/// A constraint and another spelling of it: spaced, reordered, repeated, with zeros that mean nothing.
fn spellings(language: Language, dice: &mut Dice) -> (String, String) {
    let table = usize::from(language == Ruby);
    let terms = 1 + dice.roll(3);
    let (mut plain, mut other) = (Vec::new(), Vec::new());
    for _ in 0..terms {
        let operator = dice.pick(OPERATORS[table]);
        let parts = 2 + dice.roll(3);
        let release: Vec<String> = (0..parts).map(|_| dice.roll(4).to_string()).collect();
        let pre = dice.pick(PRERELEASES[table]);
        let counts = operator.starts_with('~');
        let zeros = if counts { "" } else { dice.pick(&["", ".0", ".0.0"]) };
        let space = dice.pick(&["", " ", "  "]);
        let lead = dice.pick(&["", "0"]);
        let release = release.join(".");
        plain.push(format!("{operator}{release}{pre}"));
        other.push(format!("{space}{operator}{space}{lead}{release}{zeros}{pre}"));
    }
    let turn = dice.roll(terms);
    other.rotate_left(turn);
    if dice.roll(4) == 0 {
        other.extend(plain.first().cloned());
    }
    (plain.join(","), other.join(" ,"))
}

#[test]
fn canonical_text_is_a_fixed_point_and_the_same_for_every_spelling() {
    for language in Language::ALL {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
        let mut distinct = std::collections::BTreeSet::new();
        for _ in 0..20_000 {
            let (plain, other) = spellings(language, &mut dice);
            let text = canonical(language, &plain);
            let Some(text) = text else { panic!("{language} {plain:?} is a constraint") };
            assert_eq!(
                canonical(language, &text).as_ref(),
                Some(&text),
                "{plain:?}: parse(canonical) is canonical"
            );
            assert_eq!(
                canonical(language, &other).as_ref(),
                Some(&text),
                "{plain:?} and {other:?} are one"
            );
            distinct.insert(text);
        }
        assert!(
            distinct.len() > 5_000,
            "{} constraints: the generator repeats itself",
            distinct.len()
        );
    }
}

/// Noise made of everything a constraint or an attack may hold: what is accepted is plain and canonical.
#[test]
fn whatever_is_accepted_is_plain() {
    const ALPHABET: [&str; 34] = [
        "0", "1", "9", ".", ".", ",", " ", ">", "<", "=", "~", "!", "*", "-", "+", "_", "a", "rc",
        "post", "dev", "v", "\"", "'", "#", "{", ";", "@", "/", "\n", "\t", "\\", "$", "é",
        "\u{0}",
    ];
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    for language in Language::ALL {
        let mut accepted = 0;
        for _ in 0..60_000 {
            let length = 1 + dice.roll(6);
            let text: String = (0..length).map(|_| dice.pick(&ALPHABET)).collect();
            let Some(found) = canonical(language, &text) else { continue };
            accepted += 1;
            let plain = |c: char| c.is_ascii_alphanumeric() || " .,<>=!~*+-".contains(c);
            assert!(found.chars().all(plain), "{text:?} became {found:?}");
            assert_eq!(canonical(language, &found).as_ref(), Some(&found), "{text:?}");
        }
        assert!(accepted > 100, "{language}: {accepted} accepted");
    }
}
