//! A plan as a model for `stateright`: its first state, its actions, its properties.

use stateright::{Model, Property};

use crate::endpoint::{Endpoint, Phase};
use crate::properties;
use crate::world::{Action, Plan, State};

impl Model for Plan {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let up = |side| Endpoint {
            phase: Phase::Up,
            ..Endpoint::new(side)
        };
        vec![State {
            ends: [up(0), up(1)],
            pipes: [Vec::new(), Vec::new()],
            same_link: true,
            cuts: self.cuts,
            restarts: self.restarts,
            witnesses: Default::default(),
            fault: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.progress(state, actions);
        self.disturb(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.step(&mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
