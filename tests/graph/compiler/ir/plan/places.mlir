// run cuda: fuse, hoist, plan
// Two arena slots for three values in a chain; outputs in place, through the reshape too.
func.func @main(%x: f32[n, 8]) -> (f32[8*n], f32[n, 8]) attributes {heddle.symbols = {n = [1, 9]}} {
  %w = weight() {name = "w"} : () -> f32[8]
  %e = exp(%w) : (f32[8]) -> f32[8]
  %a = softmax(%x) {axis = 1 : i64} : (f32[n, 8]) -> f32[n, 8]
  %b = layer_norm(%a, %e, %w) {epsilon = 1.0e-5 : f64} : (f32[n, 8], f32[8], f32[8]) -> f32[n, 8]
  %c = softmax(%b) {axis = 1 : i64} : (f32[n, 8]) -> f32[n, 8]
  %d = softmax(%c) {axis = 1 : i64} : (f32[n, 8]) -> f32[n, 8]
  %f = reshape(%d) {shape = ["8*n"]} : (f32[n, 8]) -> f32[8*n]
  return %f, %d : f32[8*n], f32[n, 8]
}

// gives
module {
  func.func @main(%arg0: f32[n, 8]) -> (f32[8*n], f32[n, 8]) attributes {heddle.init_arena = "0", heddle.main_arena = "-128*((-32*n) // (64))", heddle.state = "64", heddle.symbols = {n = [1, 9]}} {
    %0 = weight() {name = "w"} : () -> f32[8]
    %1 = fused(%0) ({
    ^bb0(%arg1: f32[8]):
      %7 = exp(%arg1) : (f32[8]) -> f32[8]
      yield(%7) : (f32[8]) -> ()
    }) {places = ["state 0"], stage = "init"} : (f32[8]) -> f32[8]
    %2 = fused(%arg0) ({
    ^bb0(%arg1: f32[n, 8]):
      %7 = softmax(%arg1) {axis = 1 : i64} : (f32[n, 8]) -> f32[n, 8]
      yield(%7) : (f32[n, 8]) -> ()
    }) {places = ["arena 0"]} : (f32[n, 8]) -> f32[n, 8]
    %3 = fused(%2, %1, %0) ({
    ^bb0(%arg1: f32[n, 8], %arg2: f32[8], %arg3: f32[8]):
      %7 = layer_norm(%arg1, %arg2, %arg3) {epsilon = 1.000000e-05 : f64} : (f32[n, 8], f32[8], f32[8]) -> f32[n, 8]
      yield(%7) : (f32[n, 8]) -> ()
    }) {places = ["arena -64*((-32*n) // (64))"]} : (f32[n, 8], f32[8], f32[8]) -> f32[n, 8]
    %4 = fused(%3) ({
    ^bb0(%arg1: f32[n, 8]):
      %7 = softmax(%arg1) {axis = 1 : i64} : (f32[n, 8]) -> f32[n, 8]
      yield(%7) : (f32[n, 8]) -> ()
    }) {places = ["arena 0"]} : (f32[n, 8]) -> f32[n, 8]
    %5 = fused(%4) ({
    ^bb0(%arg1: f32[n, 8]):
      %7 = softmax(%arg1) {axis = 1 : i64} : (f32[n, 8]) -> f32[n, 8]
      yield(%7) : (f32[n, 8]) -> ()
    }) {places = ["output 0"]} : (f32[n, 8]) -> f32[n, 8]
    %6 = reshape(%5) {shape = ["8*n"]} : (f32[n, 8]) -> f32[8*n]
    return %6, %5 : f32[8*n], f32[n, 8]
  }
}
