//! Answers of the contexts of an instance to a control message.

use std::sync::{Arc, Mutex, PoisonError};

use millrace_plugin_abi::Reply;

/// Receiver of a context's answer to a control message. Gets `None` if the instance doesn't exist, or is removed
/// before it answers.
pub type Answer = Box<dyn FnOnce(Option<Reply>) + Send>;

/// Receiver of the answers of all contexts of an instance, in their order. Gets `None` if the instance doesn't
/// exist, or is removed before all contexts answer.
pub type Answers = Box<dyn FnOnce(Option<Vec<Reply>>) + Send>;

/// Answers that have arrived.
struct Gathered {
    replies: Vec<Option<Reply>>,
    missing: usize,
    answer: Option<Answers>,
}

impl Gathered {
    /// Notes an answer. Passes all of them on after the last one.
    fn note(&mut self, number: usize, reply: Option<Reply>) {
        if let Some(place) = self.replies.get_mut(number) {
            *place = reply;
        }
        self.missing -= 1;
        if self.missing == 0
            && let Some(answer) = self.answer.take()
        {
            answer(self.replies.drain(..).collect());
        }
    }
}

/// Returns a receiver for the answer of each of `contexts` contexts. `answer` receives all answers together.
pub(crate) fn each_answer(contexts: u8, answer: Answers) -> impl Iterator<Item = Answer> {
    let missing = usize::from(contexts);
    let replies = (0..missing).map(|_| None).collect();
    let gathered = Arc::new(Mutex::new(Gathered { replies, missing, answer: Some(answer) }));
    (0..missing).map(move |number| -> Answer {
        let gathered = gathered.clone();
        Box::new(move |reply| gathered.lock().unwrap_or_else(PoisonError::into_inner).note(number, reply))
    })
}
