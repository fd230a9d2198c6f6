//! Takes the wrapper away from the command of a server, for `afresh adopt --undo`: what is left is what was there before.
//! Driven by [`File`](super::File). Never changes another part of the text.

use super::Edit;
use super::wrapper::{ClientServer, Launch, Split, Wrapped, behind};

impl ClientServer {
    /// The changes that take the wrapper away.
    pub(super) fn unwrap(&self, text: &str) -> Vec<Edit> {
        let Wrapped::Yes { command, flags } = behind(&self.launch.words()) else {
            return Vec::new();
        };
        let delete = |range| Edit { range, text: String::new() };
        match &self.launch {
            Launch::Whole(list) => {
                vec![delete(list.words[0].range.start..list.words[command].range.start)]
            }
            Launch::Split(Split { command: program, args: Some(args), .. }) => {
                // The list begins behind the program.
                let (words, command, flags) = (&args.list.words, command - 1, flags - 1);
                let own = &words[command].range;
                let original = text[own.clone()].to_owned();
                let restored = |range| Edit { range, text: original.clone() };
                if let Some(next) = words.get(command + 1) {
                    let front = delete(words[0].range.start..next.range.start);
                    return vec![restored(program.range.clone()), front];
                }
                let (start, end) = (program.range.end, args.key.start);
                let is_ours = words[flags].text.starts_with("--name=")
                    && start <= end
                    && text[start..end].chars().all(|c| c == ',' || c.is_ascii_whitespace());
                if is_ours {
                    return vec![restored(program.range.start..args.list.range.end)];
                }
                let emptied = match args.list.ends_with_comma {
                    // A comma after the last word can't stay without it.
                    true => Edit { range: args.list.range.clone(), text: "[]".to_owned() },
                    false => delete(words[0].range.start..own.end),
                };
                vec![restored(program.range.clone()), emptied]
            }
            Launch::Split(_) | Launch::Remote | Launch::Odd(_) => Vec::new(),
        }
    }
}
