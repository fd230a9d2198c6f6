//! Hostile catalogs: servers list what they like, in whatever form, and change it while it is read. Whatever
//! they do, each name that a client sees is there once, leads to one server and to the name that this server
//! gave, and nothing is there that was denied.
//!
//! The servers know which of their entries are proper, and by that the list that each client must see.

#[path = "catalogs/entries.rs"]
mod entries;
#[path = "catalogs/world.rs"]
mod world;

use self::world::World;

/// So many pages of lists hostile servers answer with, each of some five entries. `AFRESH_TEST_HISTORIES` asks for
/// a number of worlds instead, each of some 27 pages.
const PAGES: usize = 5_000;

#[test]
#[expect(clippy::disallowed_methods, reason = "a test may be asked for more")]
fn whatever_servers_list_each_name_leads_to_one_of_them() {
    let asked = std::env::var("AFRESH_TEST_HISTORIES").ok().and_then(|count| count.parse().ok());
    let worlds = asked.unwrap_or(u64::MAX);
    let (mut pages, mut entries, mut names, mut clashes) = (0, 0, 0, 0);
    for seed in 1..=worlds {
        let mut world = World::new(seed);
        world.live();
        pages += world.count.pages;
        entries += world.count.entries;
        names += world.count.names;
        clashes += world.count.clashes;
        if asked.is_none() && pages >= PAGES {
            break;
        }
    }
    println!(
        "{pages} pages with {entries} entries; {names} names were followed, {clashes} clashes"
    );
    // What is tested does happen.
    assert!(names > pages / 10 && clashes > pages / 100, "{names} {clashes}");
}
