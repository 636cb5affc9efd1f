// A client of Kubernetes' retired leader-elector, like the example that came with it: asks its sidecar
// for the leader's name at a fixed pace, and compares it with its own.

'use strict';

const http = require('http');
const os = require('os');

const url = process.env.ELECTOR_GET_URL || 'http://localhost:4040/';
const own = process.env.HOSTNAME || os.hostname();

// What is known of the current master.
let master = {};

function say(now) {
  if (now.name === master.name) {
    return;
  }
  master = now;
  console.log(master.name === own ? 'I am the master' : `Master is ${master.name || 'unknown'}`);
}

function updateMaster() {
  const request = http.get(url, response => {
    let body = '';
    response.on('data', piece => { body += piece; });
    response.on('end', () => say(JSON.parse(body)));
  });
  request.on('error', error => console.log(`problem with request: ${error.message}`));
}

updateMaster();
setInterval(updateMaster, 500);
