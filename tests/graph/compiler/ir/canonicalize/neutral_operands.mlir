// run cpu: canonicalize
// x - 0, x * 1, x / 1 and x + -0.0 go; x + 0.0 stays: it turns -0.0 into 0.0.
func.func @main(%x: f32[n]) -> f32[n] attributes {heddle.symbols = {n = [1, 9]}} {
  %zero = constant() {value = dense<0.0> : tensor<f32>} : () -> f32[]
  %minus = constant() {value = dense<-0.0> : tensor<f32>} : () -> f32[]
  %one = constant() {value = dense<1.0> : tensor<f32>} : () -> f32[]
  %a = sub(%x, %zero) : (f32[n], f32[]) -> f32[n]
  %b = mul(%one, %a) : (f32[], f32[n]) -> f32[n]
  %c = div(%b, %one) : (f32[n], f32[]) -> f32[n]
  %d = add(%c, %minus) : (f32[n], f32[]) -> f32[n]
  %e = add(%d, %zero) : (f32[n], f32[]) -> f32[n]
  return %e : f32[n]
}

// gives
module {
  func.func @main(%arg0: f32[n]) -> f32[n] attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = constant() {value = dense<0.000000e+00> : tensor<f32>} : () -> f32[]
    %1 = add(%arg0, %0) : (f32[n], f32[]) -> f32[n]
    return %1 : f32[n]
  }
}
