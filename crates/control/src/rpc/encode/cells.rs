//! Encoded states by the items they are of, with a bound on their bytes.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Weak},
};

use bytes::Bytes;
use store::Item;

use super::Form;

/// What a cell costs beside its bytes, roughly.
const CELL_BYTES: usize = 128;

/// An item's place in memory stands for the item: there is one of each in the image, and all pictures point to
/// it. As long as the cell has its weak pointer nothing else can be in that place.
type Place = (usize, Form);

/// Keeps what was used since it was last looked at, and drops the oldest of the rest when there is too much.
pub(super) struct Cells {
    by_place: BTreeMap<Place, Cell>,
    /// Oldest first; each place in the map once.
    order: VecDeque<Place>,
    bytes: usize,
    bytes_max: usize,
}

struct Cell {
    item: Weak<Item>,
    bytes: Bytes,
    is_used: bool,
}

impl Cells {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { by_place: BTreeMap::new(), order: VecDeque::new(), bytes: 0, bytes_max }
    }

    pub(super) fn get(&mut self, form: Form, item: &Arc<Item>) -> Option<Bytes> {
        let cell = self.by_place.get_mut(&place(form, item))?;
        cell.is_used = true;
        Some(cell.bytes.clone())
    }

    pub(super) fn put(&mut self, form: Form, item: &Arc<Item>, bytes: Bytes) {
        let cost = bytes.len() + CELL_BYTES;
        if cost > self.bytes_max {
            return;
        }
        while self.bytes + cost > self.bytes_max {
            self.drop_one();
        }
        self.bytes += cost;
        let place = place(form, item);
        let cell = Cell { item: Arc::downgrade(item), bytes, is_used: false };
        let displaced = self.by_place.insert(place, cell);
        assert!(displaced.is_none(), "a state is encoded only if it is not there");
        self.order.push_back(place);
    }

    /// Drops the oldest that is of no use: its item is gone from the image, or nobody asked for it again.
    fn drop_one(&mut self) {
        while let Some(place) = self.order.pop_front() {
            let cell = self.by_place.get_mut(&place).expect("every place in the order is in the map");
            if cell.is_used && cell.item.strong_count() > 0 {
                cell.is_used = false;
                self.order.push_back(place);
                continue;
            }
            self.bytes -= cell.bytes.len() + CELL_BYTES;
            self.by_place.remove(&place);
            return;
        }
    }
}

fn place(form: Form, item: &Arc<Item>) -> Place {
    (Arc::as_ptr(item).addr(), form)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{environment::Environment, watch::Key, watch::Version};
    use store::{EnvironmentPolicies, State, Topic};

    fn item(version: u64) -> Arc<Item> {
        let environment = Environment::sample().id;
        let state = State::Environment(Arc::new(EnvironmentPolicies { environment, policies: "[]".into() }));
        Arc::new(Item {
            topic: Topic::Environment(environment),
            key: Key::new(environment.to_string()),
            version: Version::new(version),
            gone: false,
            change: None,
            state,
        })
    }

    fn cells(count: usize, size: usize) -> Cells {
        Cells::new(count * (size + CELL_BYTES))
    }

    #[test]
    fn what_was_encoded_is_found_again_in_its_own_form_only() {
        let (mut cells, item) = (cells(2, 10), item(1));
        cells.put(Form::Deployments, &item, Bytes::from_static(&[7; 10]));
        assert_eq!(cells.get(Form::Deployments, &item).unwrap().as_ref(), [7; 10]);
        assert_eq!(cells.get(Form::Changes, &item), None);
    }

    #[test]
    fn another_item_of_the_same_key_and_version_is_another_item() {
        let (mut cells, first, second) = (cells(2, 10), item(1), item(1));
        cells.put(Form::Routes, &first, Bytes::from_static(&[7; 10]));
        assert_eq!(cells.get(Form::Routes, &second), None);
    }

    #[test]
    fn the_bytes_kept_stay_within_their_bound_and_what_is_used_stays() {
        let mut cells = cells(3, 10);
        let items: Vec<_> = (1..=100).map(item).collect();
        for item in &items {
            cells.put(Form::Routes, item, Bytes::from_static(&[7; 10]));
            assert!(cells.get(Form::Routes, &items[0]).is_some(), "it is asked for all the time");
            assert!(cells.bytes <= cells.bytes_max);
            assert_eq!(cells.order.len(), cells.by_place.len());
        }
        assert_eq!(cells.by_place.len(), 3);
    }

    #[test]
    fn what_left_the_image_goes_first_however_often_it_was_used() {
        let mut cells = cells(2, 10);
        let (old, new, newer) = (item(1), item(2), item(3));
        for item in [&old, &new] {
            cells.put(Form::Routes, item, Bytes::from_static(&[7; 10]));
            cells.get(Form::Routes, item);
        }
        drop(old);
        cells.put(Form::Routes, &newer, Bytes::from_static(&[7; 10]));
        assert!(cells.get(Form::Routes, &new).is_some());
        assert!(cells.get(Form::Routes, &newer).is_some());
    }

    #[test]
    fn what_is_larger_than_the_bound_is_not_kept() {
        let (mut cells, item) = (cells(1, 10), item(1));
        cells.put(Form::Routes, &item, Bytes::from_static(&[7; 11]));
        assert_eq!(cells.get(Form::Routes, &item), None);
        assert_eq!(cells.bytes, 0);
    }
}
