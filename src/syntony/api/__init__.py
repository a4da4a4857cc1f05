"""The HTTP API and the console of a controller or gateway: routes, sessions, live events, files. It
carries out the requests that `syntony.controller.questions` registers."""
