//! The subscriptions of many receivers: which of them a message goes to. Every subscriber of a topic gets each message that
//! it wants (REQ-MM-33).

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use crate::Filter;
use crate::text::Properties;

/// Subscriptions by topic; `T` is who has them. A second subscription of one receiver to a topic replaces the first
/// (R-MM-V14). Filters look at properties alone, never into payloads (REQ-MM-36).
#[derive(Debug)]
pub struct Subscriptions<T> {
    topics: HashMap<String, Vec<Subscription<T>>>,
}

#[derive(Debug)]
struct Subscription<T> {
    whose: T,
    filter: Option<Arc<Filter>>,
}

impl<T> Default for Subscriptions<T> {
    fn default() -> Self {
        Self {
            topics: HashMap::new(),
        }
    }
}

impl<T: Eq + Hash> Subscriptions<T> {
    /// Adds a subscription, or changes its filter. Returns whether it is a new one.
    pub fn set(&mut self, topic: &str, whose: T, filter: Option<Arc<Filter>>) -> bool {
        if !self.topics.contains_key(topic) {
            self.topics.insert(topic.to_owned(), Vec::new());
        }
        let of_topic = self.topics.entry(topic.to_owned()).or_default();
        if let Some(one) = of_topic.iter_mut().find(|one| one.whose == whose) {
            one.filter = filter;
            return false;
        }
        of_topic.push(Subscription { whose, filter });
        true
    }

    /// Removes a subscription. Returns whether there was one.
    pub fn remove(&mut self, topic: &str, whose: &T) -> bool {
        let Some(of_topic) = self.topics.get_mut(topic) else {
            return false;
        };
        let before = of_topic.len();
        of_topic.retain(|one| one.whose != *whose);
        let is_removed = of_topic.len() < before;
        if of_topic.is_empty() {
            self.topics.remove(topic);
        }
        is_removed
    }

    /// The receivers whose subscription to a topic a message matches, in the order in which they subscribed.
    pub fn matching<'a>(
        &'a self,
        topic: &str,
        properties: &'a mut Properties<'_>,
    ) -> impl Iterator<Item = &'a T> {
        let of_topic = self.topics.get(topic).map_or(&[][..], Vec::as_slice);
        if of_topic.len() > 1 {
            properties.index();
        }
        let properties = &*properties;
        of_topic.iter().filter_map(move |one| {
            let filter = one.filter.as_deref();
            let is_match = filter.is_none_or(|filter| filter.matches(properties));
            is_match.then_some(&one.whose)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filter(text: &str) -> Arc<Filter> {
        Arc::new(Filter::read(text.as_bytes()).unwrap())
    }

    fn matching(all: &Subscriptions<u8>, topic: &str, properties: &str) -> Vec<u8> {
        let mut properties = Properties::new(properties.as_bytes());
        all.matching(topic, &mut properties).copied().collect()
    }

    #[test]
    fn a_message_goes_to_each_receiver_of_its_topic_whose_filter_it_matches() {
        let mut all = Subscriptions::default();
        assert!(
            all.set("t", 1, None) && all.set("t", 2, Some(filter("n>N3"))) && all.set("u", 3, None)
        );
        assert_eq!(matching(&all, "t", "n:N4;"), [1, 2]);
        assert_eq!(matching(&all, "t", ""), [1]);
        assert_eq!(matching(&all, "u", ""), [3]);
        assert_eq!(matching(&all, "T", ""), [0; 0]);
        assert_eq!(matching(&all, "", ""), [0; 0]);
    }

    #[test]
    fn a_second_subscription_to_a_topic_replaces_the_first_in_its_place() {
        let mut all = Subscriptions::default();
        assert!(all.set("t", 1, Some(filter("n>N3"))) && all.set("t", 2, None));
        assert!(!all.set("t", 1, Some(filter("n<N3"))));
        assert_eq!(matching(&all, "t", "n:N4;"), [2]);
        assert!(!all.set("t", 1, None));
        assert_eq!(matching(&all, "t", "n:N4;"), [1, 2]);
    }

    #[test]
    fn nothing_stays_of_a_topic_without_subscriptions() {
        let mut all = Subscriptions::default();
        all.set("t", 1, None);
        assert!(!all.remove("t", &2) && !all.remove("u", &1));
        assert!(all.remove("t", &1) && !all.remove("t", &1));
        assert!(all.topics.is_empty());
    }

    /// Subscriptions in the order in which they were made: topic, receiver and the least number that is wanted.
    type Model = Vec<(String, u8, Option<i64>)>;

    #[derive(Debug, Clone)]
    enum Call {
        Set(String, u8, Option<i64>),
        Remove(String, u8),
        Publish(String, i64),
    }

    fn call() -> impl Strategy<Value = Call> {
        let topic = || "[a-c]";
        prop_oneof![
            (topic(), 0_u8..4, proptest::option::of(0_i64..5))
                .prop_map(|(topic, whose, least)| Call::Set(topic, whose, least)),
            (topic(), 0_u8..4).prop_map(|(topic, whose)| Call::Remove(topic, whose)),
            (topic(), 0_i64..5).prop_map(|(topic, number)| Call::Publish(topic, number)),
        ]
    }

    proptest! {
        #[test]
        fn any_calls_do_what_they_do_to_a_list(calls in proptest::collection::vec(call(), 0..60)) {
            let mut all = Subscriptions::default();
            let mut model = Model::new();
            for call in calls {
                match call {
                    Call::Set(topic, whose, least) => {
                        let read = least.map(|least| filter(&format!("n>=N{least}")));
                        let found = model.iter_mut().find(|one| (&one.0, one.1) == (&topic, whose));
                        prop_assert_eq!(all.set(&topic, whose, read), found.is_none());
                        match found {
                            Some(one) => one.2 = least,
                            None => model.push((topic, whose, least)),
                        }
                    }
                    Call::Remove(topic, whose) => {
                        let before = model.len();
                        model.retain(|one| (&one.0, one.1) != (&topic, whose));
                        prop_assert_eq!(all.remove(&topic, &whose), model.len() < before);
                    }
                    Call::Publish(topic, number) => {
                        let wanted = model.iter().filter(|one| one.0 == topic && one.2.is_none_or(|least| number >= least));
                        let wanted: Vec<_> = wanted.map(|one| one.1).collect();
                        prop_assert_eq!(matching(&all, &topic, &format!("n:N{number};")), wanted);
                    }
                }
            }
        }
    }
}
