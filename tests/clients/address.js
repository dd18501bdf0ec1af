// Where the server is, as the scripts beside this one are told:
//
//   HOST:PORT                a TCP port
//   unix:PATH                a Unix socket
//   tls:HOST:PORT:FOLDER     a port for encrypted connections; ca.crt, client.crt and client.key are in the folder

"use strict";

const fs = require("node:fs");
const path = require("node:path");

function parse(text) {
  if (text.startsWith("unix:")) return { path: text.slice("unix:".length) };
  const [host, port, folder] = text.replace(/^tls:/, "").split(":");
  return { host, port: Number(port), folder };
}

// What an encrypted connection takes.
function tlsOptions({ folder }) {
  const read = (name) => fs.readFileSync(path.join(folder, name));
  return { ca: read("ca.crt"), cert: read("client.crt"), key: read("client.key") };
}

module.exports = { parse, tlsOptions };
