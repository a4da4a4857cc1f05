"""The fabric's topology, the paths of probe flows, and localisation of components that lose or
delay packets. Everything here is pure: no clock, file or socket. The controller and
`syntony fabric` call it."""
