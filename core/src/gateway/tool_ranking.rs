//! Ranks tools by the words of a query: BM25 over the fields of their definitions, without stop words, by the stems of
//! English. Used by the search of the hub. Never knows a client. The weights come from half of the questions of
//! `tests/interop/find_tools`; the other half says what they are worth.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use frostem::{Algorithm, Stemmer};
use serde_json::Value;

use crate::limits::{RANKED_DEPTH_MAX, RANKED_TEXT_BYTES_MAX, RANKED_WORDS_MAX};

/// The fields of a tool, each with its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RankedField {
    Name,
    Title,
    /// The first sentence of the description: what the tool does. The rest is how, and when not.
    Summary,
    Details,
    Parameter,
    ParameterDescription,
    /// Values that a parameter can have.
    Choice,
    Server,
}

impl RankedField {
    const ALL: [Self; 8] = [
        Self::Name,
        Self::Title,
        Self::Summary,
        Self::Details,
        Self::Parameter,
        Self::ParameterDescription,
        Self::Choice,
        Self::Server,
    ];

    const fn weight(self) -> f64 {
        match self {
            Self::Name => 3.0,
            Self::Title | Self::Summary => 2.0,
            Self::Server => 1.0,
            Self::Details | Self::Parameter => 0.5,
            Self::ParameterDescription | Self::Choice => 0.25,
        }
    }
}

/// What a word counts that is the initials of words in the name, the title or the description: `PR`.
const INITIALS_WEIGHT: f64 = 2.0;

/// Letters of a word that may be initials. A single one is too common, and a longer one is a word.
const INITIALS: RangeInclusive<usize> = 2..=4;

/// How soon more of the same word does not count any more; the usual figure.
const SATURATION: f64 = 1.2;

/// How much a long field is held against its words; the usual figure.
const LENGTH_PART: f64 = 0.75;

/// What ends the words that may be known by their initials.
const SENTENCE_ENDS: &[char] = &['.', ',', ';', ':', '(', ')', '\n'];

/// Words that are in every text and tell nothing.
const STOP_WORDS: &[&str] = &[
    "a", "about", "all", "also", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by",
    "can", "could", "did", "do", "does", "for", "from", "had", "has", "have", "how", "i", "if",
    "in", "into", "is", "it", "its", "me", "my", "need", "no", "not", "of", "on", "or", "our",
    "out", "please", "should", "so", "some", "such", "than", "that", "the", "their", "them",
    "then", "there", "these", "they", "this", "those", "to", "tool", "tools", "up", "use", "used",
    "using", "want", "was", "we", "were", "what", "when", "where", "which", "who", "will", "with",
    "would", "you", "your",
];

/// The words of one tool.
#[derive(Debug, Default)]
struct RankedTool {
    /// How often each stem is in each field.
    words: BTreeMap<String, BTreeMap<RankedField, f64>>,
    lengths: BTreeMap<RankedField, f64>,
    /// The initials of the words of each sentence.
    initials: Vec<String>,
}

/// A tool to be ranked.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankedSource<'a> {
    /// The server that has it.
    pub(super) server: &'a str,
    /// What the server calls it.
    pub(super) name: &'a str,
    /// Its definition.
    pub(super) json: &'a [u8],
}

/// The tools that fit a query, by their places in the list, the best one first. All of them, where the query has no word
/// that tells anything.
pub(super) fn rank(query: &str, tools: &[RankedSource<'_>]) -> Vec<usize> {
    let stemmer = Stemmer::new(Algorithm::English);
    let wanted = stems(&stemmer, query);
    if wanted.is_empty() {
        return (0..tools.len()).collect();
    }
    let ranked: Vec<RankedTool> =
        tools.iter().map(|tool| RankedTool::new(&stemmer, *tool)).collect();
    let average = |field: RankedField| {
        let all: f64 = ranked.iter().filter_map(|tool| tool.lengths.get(&field)).sum();
        (all / ranked.len().max(1) as f64).max(1.0)
    };
    let averages: BTreeMap<RankedField, f64> =
        RankedField::ALL.map(|field| (field, average(field))).into();
    let mut scores = vec![0.0; ranked.len()];
    let wanted: BTreeSet<&String> = wanted.iter().collect();
    for word in wanted {
        let frequencies: Vec<f64> =
            ranked.iter().map(|tool| tool.frequency(word, &averages)).collect();
        let having = frequencies.iter().filter(|frequency| **frequency > 0.0).count() as f64;
        let rarity = (1.0 + (ranked.len() as f64 - having + 0.5) / (having + 0.5)).ln();
        for (score, frequency) in scores.iter_mut().zip(frequencies) {
            *score += rarity * frequency / (SATURATION + frequency);
        }
    }
    let mut found: Vec<usize> = (0..tools.len()).filter(|tool| scores[*tool] > 0.0).collect();
    // Equal scores stay in the order of the list.
    found.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    found
}

impl RankedTool {
    fn new(stemmer: &Stemmer, source: RankedSource<'_>) -> Self {
        let mut tool = Self::default();
        let definition: Value = serde_json::from_slice(source.json).unwrap_or_default();
        let text = |value: &Value| value.as_str().map(str::to_owned).unwrap_or_default();
        tool.add(stemmer, RankedField::Server, source.server);
        tool.add(stemmer, RankedField::Name, source.name);
        let title = [&definition["title"], &definition["annotations"]["title"]].map(text).join(" ");
        tool.add(stemmer, RankedField::Title, &title);
        let description = text(&definition["description"]);
        let (summary, details) = first_sentence(description.trim_start());
        tool.add(stemmer, RankedField::Summary, summary);
        tool.add(stemmer, RankedField::Details, details);
        tool.add_parameters(stemmer, &definition["inputSchema"], 0);
        for text in [source.name, &title, &description] {
            let sentences = text[..looked_at(text)].split(SENTENCE_ENDS);
            let initials =
                |part: &str| words(part).iter().filter_map(|word| word.chars().next()).collect();
            tool.initials.extend(sentences.map(initials).filter(|its: &String| !its.is_empty()));
        }
        tool
    }

    /// Adds the parameters that a schema declares, and those of objects in them.
    fn add_parameters(&mut self, stemmer: &Stemmer, schema: &Value, depth: usize) {
        if depth > RANKED_DEPTH_MAX {
            return;
        }
        for (name, about) in schema["properties"].as_object().into_iter().flatten() {
            self.add(stemmer, RankedField::Parameter, name);
            let description = about["description"].as_str().unwrap_or_default();
            self.add(stemmer, RankedField::ParameterDescription, description);
            for choice in about["enum"].as_array().into_iter().flatten() {
                self.add(stemmer, RankedField::Choice, choice.as_str().unwrap_or_default());
            }
            self.add_parameters(stemmer, about, depth + 1);
            self.add_parameters(stemmer, &about["items"], depth + 1);
        }
    }

    fn add(&mut self, stemmer: &Stemmer, field: RankedField, text: &str) {
        for stem in stems(stemmer, text) {
            *self.words.entry(stem).or_default().entry(field).or_default() += 1.0;
            *self.lengths.entry(field).or_default() += 1.0;
        }
    }

    /// How often it has a word, by the weights and lengths of the fields.
    fn frequency(&self, word: &str, averages: &BTreeMap<RankedField, f64>) -> f64 {
        let part = |(field, count): (&RankedField, &f64)| {
            let length = self.lengths[field] / averages[field];
            field.weight() * count / (1.0 - LENGTH_PART + LENGTH_PART * length)
        };
        let one = word.strip_suffix('s').unwrap_or(word);
        let has_initials = INITIALS.contains(&one.chars().count())
            && self.initials.iter().any(|initials| initials.contains(one));
        let fields: f64 = self.words.get(word).into_iter().flatten().map(part).sum();
        fields + if has_initials { INITIALS_WEIGHT } else { 0.0 }
    }
}

/// The stems of a text, without stop words, as far as they are looked at.
fn stems(stemmer: &Stemmer, text: &str) -> Vec<String> {
    let words = words(&text[..looked_at(text)]).into_iter();
    let words = words.filter(|word| !STOP_WORDS.contains(&word.as_str()));
    words.take(RANKED_WORDS_MAX).map(|word| stemmer.stem(&word).into_owned()).collect()
}

/// How much of a text is looked at.
fn looked_at(text: &str) -> usize {
    text.floor_char_boundary(RANKED_TEXT_BYTES_MAX)
}

/// A text before the end of its first sentence or line, and after it.
fn first_sentence(text: &str) -> (&str, &str) {
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        let is_last = letters.peek().is_none_or(|(_, next)| next.is_whitespace());
        if letter == '\n' || is_last && matches!(letter, '.' | '!' | '?') {
            return text.split_at(at);
        }
    }
    (text, "")
}

/// The words of a text in lower case. Names such as `readFile`, `read_file` and `file2` are two words.
fn words(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    for part in text.split(|c: char| !c.is_alphanumeric()) {
        let mut word = String::new();
        let mut before = ' ';
        for c in part.chars() {
            let is_next_part = c.is_uppercase() && before.is_lowercase();
            if is_next_part || c.is_numeric() != before.is_numeric() {
                all.push(std::mem::take(&mut word));
            }
            word.extend(c.to_lowercase());
            before = c;
        }
        all.push(word);
    }
    all.retain(|word| !word.is_empty());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(query: &str, tools: &[(&str, &str)]) -> Vec<usize> {
        let json: Vec<String> = tools
            .iter()
            .map(|(name, about)| format!(r#"{{"name":"{name}","description":"{about}"}}"#))
            .collect();
        let sources: Vec<RankedSource<'_>> = tools
            .iter()
            .zip(&json)
            .map(|((name, _), json)| RankedSource { server: "s", name, json: json.as_bytes() })
            .collect();
        rank(query, &sources)
    }

    #[test]
    fn words_are_found_in_other_forms_and_in_names() {
        let tools = [
            ("browserTakeScreenshot", "Capture the page as an image"),
            ("list_directory", "Lists the entries of a folder"),
            ("git_commit", "Records changes to the repository"),
        ];
        assert_eq!(order("taking screenshots", &tools), [0]);
        assert_eq!(order("what is listed in these folders", &tools), [1]);
        assert_eq!(order("commit the recorded change", &tools), [2]);
        assert_eq!(order("nothing of that", &tools), [] as [usize; 0]);
        assert_eq!(order("the of and", &tools), [0, 1, 2], "it has no word that tells anything");
    }

    #[test]
    fn a_name_counts_more_than_a_description_and_a_rare_word_more_than_a_common_one() {
        let tools = [
            ("search", "Reads pages and deletes old pages"),
            ("delete_page", "Removes it"),
            ("page_list", "All pages"),
        ];
        assert_eq!(order("delete page", &tools)[0], 1);
        assert_eq!(order("search pages", &tools)[0], 0);
    }

    #[test]
    fn a_tool_is_found_by_initials_and_by_what_it_does_rather_than_by_its_details() {
        let tools = [
            ("upload", "Uploads files"),
            ("list_pull_requests", "Lists them"),
            ("get_files", "Get the files of a pull request"),
        ];
        assert_eq!(order("files of the PR", &tools)[0], 2);
        assert_eq!(order("PRs", &tools), [1, 2]);
        assert_eq!(order("a PRR", &tools), [] as [usize; 0]);
        let tools = [
            ("a", "Sends a letter. Do not use it for a picture, or another picture"),
            ("b", "Sends a picture. The letter is another one"),
        ];
        assert_eq!(order("picture", &tools)[0], 1);
        assert_eq!(order("letter", &tools)[0], 0);
    }

    #[test]
    fn a_tool_is_found_by_nested_parameters_and_by_what_they_can_be() {
        let tool =
            |schema: &str| format!(r#"{{"name":"a","inputSchema":{{"properties":{schema}}}}}"#);
        let deep = r#"{"x":{"items":{"properties":{"address":{"description":"Where it goes"}}}}}"#;
        let json = [tool(deep), tool(r#"{"state":{"enum":["open","closed",7]}}"#), tool("7")];
        let sources: Vec<RankedSource<'_>> = json
            .iter()
            .map(|json| RankedSource { server: "s", name: "a", json: json.as_bytes() })
            .collect();
        for (query, place) in [("address", 0), ("goes", 0), ("closed", 1)] {
            assert_eq!(rank(query, &sources), [place], "{query}");
        }
        let endless = r#"{"properties":{"x":"#.repeat(40) + "7" + &"}}".repeat(40);
        let json = format!(r#"{{"inputSchema":{endless}}}"#);
        let source = RankedSource { server: "s", name: "a", json: json.as_bytes() };
        assert_eq!(rank("x", &[source]), [0]);
    }

    #[test]
    fn no_text_is_too_much() {
        let long = "word ".repeat(100_000);
        assert_eq!(order("word", &[("a", &long), ("b", "another")]), [0]);
        assert_eq!(order(&long, &[("a", "word"), ("é\u{301}", "")]), [0]);
    }
}
