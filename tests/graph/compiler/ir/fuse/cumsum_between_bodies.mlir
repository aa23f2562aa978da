// run cpu: fuse
// Sums along any axis read through what is before them, and write through what is behind.
func.func @main(%x: f32[n, 3, 4], %m: f32[n, 3, 1]) -> f32[n, 3, 4] attributes {heddle.symbols = {n = [1, 9]}} {
  %wide = broadcast_to(%m) {shape = ["n", "3", "4"]} : (f32[n, 3, 1]) -> f32[n, 3, 4]
  %a = mul(%x, %wide) : (f32[n, 3, 4], f32[n, 3, 4]) -> f32[n, 3, 4]
  %b = cumsum(%a) {axis = 0 : i64} : (f32[n, 3, 4]) -> f32[n, 3, 4]
  %c = exp(%b) : (f32[n, 3, 4]) -> f32[n, 3, 4]
  %d = cumsum(%c) {axis = 1 : i64} : (f32[n, 3, 4]) -> f32[n, 3, 4]
  return %d : f32[n, 3, 4]
}

// gives
module {
  func.func @main(%arg0: f32[n, 3, 4], %arg1: f32[n, 3, 1]) -> f32[n, 3, 4] attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = fused(%arg0, %arg1) ({
    ^bb0(%arg2: f32[n, 3, 4], %arg3: f32[n, 3, 1]):
      %2 = broadcast_to(%arg3) {shape = ["n", "3", "4"]} : (f32[n, 3, 1]) -> f32[n, 3, 4]
      %3 = mul(%arg2, %2) : (f32[n, 3, 4], f32[n, 3, 4]) -> f32[n, 3, 4]
      %4 = cumsum(%3) {axis = 0 : i64} : (f32[n, 3, 4]) -> f32[n, 3, 4]
      %5 = exp(%4) : (f32[n, 3, 4]) -> f32[n, 3, 4]
      yield(%5) : (f32[n, 3, 4]) -> ()
    }) : (f32[n, 3, 4], f32[n, 3, 1]) -> f32[n, 3, 4]
    %1 = fused(%0) ({
    ^bb0(%arg2: f32[n, 3, 4]):
      %2 = cumsum(%arg2) {axis = 1 : i64} : (f32[n, 3, 4]) -> f32[n, 3, 4]
      yield(%2) : (f32[n, 3, 4]) -> ()
    }) : (f32[n, 3, 4]) -> f32[n, 3, 4]
    return %1 : f32[n, 3, 4]
  }
}
