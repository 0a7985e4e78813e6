//! The command `top`: periodic display of a running router.

mod look;
mod screen;

use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};

use self::look::Look;
use self::screen::Screen;
use crate::arguments::Top;
use crate::client::Client;
use crate::output::Failure;

/// Interval at which keys are polled.
const KEYS: Duration = Duration::from_millis(50);

/// Draws until `q` is pressed or the router is gone.
pub fn top(client: Client, top: &Top, json: bool) -> Result<(), Failure> {
    if json || !std::io::stdout().is_terminal() {
        let instead = "use `show`, `flow list` or `queue show` for a single output (--json for JSON), or \
                       `metrics` for programs";
        return Err(Failure::usage(format!("top needs a terminal: {instead}")));
    }
    let first = Look::take(&client)?;
    let (sender, looks) = channel();
    let interval = top.interval.duration();
    // When the screen ends, it drops the receiver. The thread then ends at its next snapshot.
    std::thread::spawn(move || look_on(&client, interval, &sender));
    let mut terminal = ratatui::init();
    let end = draw(&mut terminal, Screen::new(first), &looks);
    ratatui::restore();
    end
}

/// Takes snapshots until the receiver is dropped, or a snapshot fails.
fn look_on(client: &Client, interval: Duration, sender: &Sender<Result<Look, Failure>>) {
    loop {
        std::thread::sleep(interval);
        let look = Look::take(client);
        let failed = look.is_err();
        if sender.send(look).is_err() || failed {
            return;
        }
    }
}

fn draw(
    terminal: &mut ratatui::DefaultTerminal,
    mut screen: Screen,
    looks: &Receiver<Result<Look, Failure>>,
) -> Result<(), Failure> {
    loop {
        terminal.draw(|frame| screen.draw(frame)).map_err(Failure::new)?;
        match looks.recv_timeout(KEYS) {
            Ok(look) => screen.show(look?),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        while event::poll(Duration::ZERO).map_err(Failure::new)? {
            let Event::Key(key) = event::read().map_err(Failure::new)? else { continue };
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                KeyCode::Char(' ') => screen.hold_or_go_on(),
                _ => {}
            }
        }
    }
}
