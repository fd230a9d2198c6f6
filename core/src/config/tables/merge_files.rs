//! Merges the tables of a stronger file into those of a weaker one, entry by entry; of keys that exclude each other the
//! stronger one stays. Driven by `load`. Never checks a value.

use std::collections::BTreeMap;

use super::Table;

/// Puts the tables of a stronger file over those that are there.
pub(in crate::config) fn overlay(tables: &mut Vec<Table>, stronger: Vec<Table>) {
    for table in stronger {
        let same = |other: &&mut Table| other.kind == table.kind && other.name == table.name;
        match tables.iter_mut().find(same) {
            Some(weaker) => weaker.overlay(table),
            None => tables.push(table),
        }
    }
}

impl Table {
    /// Takes over what a stronger file says.
    fn overlay(&mut self, stronger: Self) {
        for entry in &stronger.entries {
            let groups = self.kind.declared().rivals.iter();
            for group in groups.filter(|group| group.contains(&entry.path.as_str())) {
                let rival = |path: &str| path != entry.path && group.contains(&path);
                let kind = self.kind;
                let goes = |path: &str| rival(path) || kind.belongs_to(path).is_some_and(rival);
                self.entries.retain(|entry| !goes(&entry.path));
            }
        }
        let places: BTreeMap<String, usize> =
            self.entries.iter().enumerate().map(|(at, entry)| (entry.path.clone(), at)).collect();
        for entry in stronger.entries {
            match places.get(&entry.path) {
                Some(at) => self.entries[*at] = entry,
                None => self.entries.push(entry),
            }
        }
    }
}
