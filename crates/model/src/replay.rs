//! The model's traces against the real machines: after every step both have written the same packets, told the same
//! events and have the same state.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write;

use stateright::Model;

use crate::machines::Machines;
use crate::packet::Output;
use crate::world::{Action, Plan, State};

/// One trace of the model and the machines.
#[derive(Debug)]
pub struct Replay<'a> {
    plan: &'a Plan,
    machines: Machines,
    state: State,
    trace: Vec<(Action, [Output; 2])>,
}

impl<'a> Replay<'a> {
    /// A replay in the plan's first state.
    pub fn new(plan: &'a Plan) -> Self {
        let state = plan.init_states().swap_remove(0);
        Self {
            plan,
            machines: Machines::new(plan),
            state,
            trace: Vec::new(),
        }
    }

    /// The model's state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Does one step with both. Returns the packets and events of each side.
    ///
    /// # Errors
    /// The difference, and the trace up to there.
    pub fn step(&mut self, action: Action) -> Result<[Output; 2], String> {
        let real = self.machines.act(&self.state, action);
        let model = self.plan.step(&mut self.state, action);
        self.trace.push((action, model.clone()));
        let real = real.map_err(|wrong| self.told(&wrong))?;
        if real != model {
            return Err(self.told(&format!("the machines: {real:?}")));
        }
        if let Some(fault) = self.state.fault {
            return Err(self.told(&format!("{fault:?}")));
        }
        self.machines
            .compare(self.plan, &self.state)
            .map_err(|wrong| self.told(&wrong))?;
        Ok(model)
    }

    fn told(&self, wrong: &str) -> String {
        let mut text = String::new();
        for (action, outputs) in &self.trace {
            let _ = writeln!(text, "{action:?}");
            for (side, output) in ["connector", "listener"].iter().zip(outputs) {
                if *output != Output::default() {
                    let _ = writeln!(
                        text,
                        "    {side} writes {:?}, tells {:?}",
                        output.packets, output.events
                    );
                }
            }
        }
        format!("{text}the last step differs: {wrong}")
    }
}

/// Replays the walk of `seed` to its end. Returns the number of its steps.
///
/// # Errors
/// As [`Replay::step`].
pub fn walk(plan: &Plan, seed: u64) -> Result<usize, String> {
    let mut replay = Replay::new(plan);
    let mut random = Random(seed);
    let mut actions = Vec::new();
    loop {
        actions.clear();
        plan.progress(replay.state(), &mut actions);
        let progress = actions.len();
        plan.disturb(replay.state(), &mut actions);
        if actions.is_empty() {
            let finished = plan.is_finished(replay.state());
            return if finished {
                Ok(replay.trace.len())
            } else {
                Err(replay.told("nothing can happen"))
            };
        }
        // One step in eight is a cut or a restart, if one is left.
        let disturbs = progress == 0 || random.below(8) == 0 && actions.len() > progress;
        let at = if disturbs {
            progress + random.below(actions.len() - progress)
        } else {
            random.below(progress)
        };
        replay
            .step(actions[at])
            .map_err(|wrong| format!("seed {seed}:\n{wrong}"))?;
        if replay.trace.len() > MOST_STEPS {
            return Err(replay.told("the walk does not end"));
        }
    }
}

/// Replays every step of every trace of the plan. Returns the numbers of states and steps.
///
/// # Errors
/// As [`Replay::step`].
pub fn every_step(plan: &Plan) -> Result<(usize, usize), String> {
    let mut graph = Graph::of(plan);
    let mut steps = 0;
    for start in 0..graph.states.len() {
        while !graph.open[start].is_empty() {
            let mut replay = Replay::new(plan);
            for action in graph.path(start) {
                replay.step(action)?;
            }
            let mut at = start;
            while let Some((action, next)) = graph.open[at].pop() {
                replay.step(action)?;
                steps += 1;
                at = next;
            }
        }
    }
    Ok((graph.states.len(), steps))
}

/// The states, and the steps from each that were not replayed.
struct Graph {
    states: Vec<Option<(usize, Action)>>,
    open: Vec<Vec<(Action, usize)>>,
}

impl Graph {
    fn of(plan: &Plan) -> Self {
        let first = plan.init_states().swap_remove(0);
        let mut indices = HashMap::from([(first.clone(), 0)]);
        let mut graph = Self {
            states: vec![None],
            open: Vec::new(),
        };
        let mut queue = VecDeque::from([first]);
        while let Some(state) = queue.pop_front() {
            let at = graph.open.len();
            let steps = plan.next_steps(&state).into_iter().map(|(action, next)| {
                let index = *indices.entry(next.clone()).or_insert_with(|| {
                    graph.states.push(Some((at, action)));
                    queue.push_back(next);
                    graph.states.len() - 1
                });
                (action, index)
            });
            let steps = steps.collect();
            graph.open.push(steps);
        }
        graph
    }

    /// Returns the shortest trace to a state.
    fn path(&self, mut at: usize) -> Vec<Action> {
        let mut path = Vec::new();
        while let Some((before, action)) = self.states[at] {
            path.push(action);
            at = before;
        }
        path.reverse();
        path
    }
}

/// Splitmix64: the seed determines the walk.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bound = u64::try_from(bound.max(1)).unwrap_or(1);
        usize::try_from((mixed ^ mixed >> 31) % bound).unwrap_or(0)
    }
}

/// Every walk of these plans is much shorter.
const MOST_STEPS: usize = 1_000;
