// One peer of the interop tests: npm lumberjack-protocol 1.0.7, which announces one window per connection and slides it.
// Usage: send.js PORT CA WINDOW < lines of JSON objects. Never more than one of its windows is unacknowledged, since it
// drops events above ten; every acknowledgement is printed, at the end `acked N`.
'use strict';
const fs = require('fs');
const lumberjack = require('lumberjack-protocol');

const [port, ca, windowSize] = process.argv.slice(2);
const events = fs.readFileSync(0, 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line));
const size = Number(windowSize);
const client = lumberjack.client(
  { host: 'localhost', port: Number(port), ca: [fs.readFileSync(ca)] },
  { windowSize: size, reconnect: 60000 },
);
let sent = 0;
let acked = 0;

function fill() {
  while (sent < events.length && sent - acked < size) client.writeDataFrame(events[sent++]);
}
client.on('dropped', (count) => { console.error(`dropped ${count}`); process.exit(1); });
client.on('disconnect', (error) => { console.error(`disconnected ${error}`); process.exit(1); });
client.on('connect', () => {
  client._socket.on('ack', (sequence) => {
    console.log(sequence);
    acked = sequence;
    if (acked === events.length) {
      console.log(`acked ${acked}`);
      process.exit(0);
    }
    fill();
  });
  fill();
});
